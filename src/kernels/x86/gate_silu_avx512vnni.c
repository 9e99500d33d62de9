#include "kernels/kernel_table.h"
#include "kernels/x86/exp_avx512vnni.h"
#include "kernels/x86/lanes_avx512vnni.h"

static inline void gate_silu(float *gate, const float *up, __mmask16 mask) {
    __m512 x = _mm512_maskz_loadu_ps(mask, gate), e = exp_avx512vnni(_mm512_xor_ps(x, _mm512_set1_ps(-0.0f)));
    __m512 y = _mm512_div_ps(x, _mm512_add_ps(_mm512_set1_ps(1.0f), e));
    _mm512_mask_storeu_ps(gate, mask, _mm512_mul_ps(y, _mm512_maskz_loadu_ps(mask, up)));
}

void gate_silu_avx512vnni(float *gate, const float *up, int64_t n) {
    int64_t i = 0;
    for (; i + 16 <= n; i += 16) gate_silu(gate + i, up + i, 0xffff);
    if (i < n) gate_silu(gate + i, up + i, lanes_avx512vnni_first(n - i));
}
