#include "kernels/kernel_table.h"
#include "kernels/x86/lanes_avx512vnni.h"

static inline void add(float *x, const float *y, __mmask16 mask) {
    __m512 sum = _mm512_add_ps(_mm512_maskz_loadu_ps(mask, x), _mm512_maskz_loadu_ps(mask, y));
    _mm512_mask_storeu_ps(x, mask, sum);
}

void add_avx512vnni(float *x, const float *y, int64_t n) {
    int64_t i = 0;
    for (; i + 16 <= n; i += 16) add(x + i, y + i, 0xffff);
    if (i < n) add(x + i, y + i, lanes_avx512vnni_first(n - i));
}
