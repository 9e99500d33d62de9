#include "kernels/kernel_table.h"
#include "kernels/x86/exp_avx512vnni.h"
#include "kernels/x86/lanes_avx512vnni.h"

static inline void weigh(const float *x, float shift, float divisor, float *out, __mmask16 mask) {
    __m512 shifted = _mm512_sub_ps(_mm512_maskz_loadu_ps(mask, x), _mm512_set1_ps(shift));
    _mm512_mask_storeu_ps(out, mask, exp_avx512vnni(_mm512_div_ps(shifted, _mm512_set1_ps(divisor))));
}

void softmax_weights_avx512vnni(const float *x, float shift, float divisor, float *out, int64_t n) {
    int64_t i = 0;
    for (; i + 16 <= n; i += 16) weigh(x + i, shift, divisor, out + i, 0xffff);
    if (i < n) weigh(x + i, shift, divisor, out + i, lanes_avx512vnni_first(n - i));
}
