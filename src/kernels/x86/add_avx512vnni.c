#include "kernels/kernel_table.h"
#include "kernels/x86/lanes_avx512vnni.h"

void add_avx512vnni(float *x, const float *y, int64_t n) {
    for (int64_t i = 0; i < n; i += 16) {
        __mmask16 mask = lanes_avx512vnni_first(n - i);
        __m512 sum = _mm512_add_ps(_mm512_maskz_loadu_ps(mask, x + i), _mm512_maskz_loadu_ps(mask, y + i));
        _mm512_mask_storeu_ps(x + i, mask, sum);
    }
}
