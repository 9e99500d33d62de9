#include "kernels/kernel_table.h"
#include "kernels/x86/exp_avx512vnni.h"
#include "kernels/x86/lanes_avx512vnni.h"

void gate_silu_avx512vnni(float *gate, const float *up, int64_t n) {
    const __m512 one = _mm512_set1_ps(1.0f), sign = _mm512_set1_ps(-0.0f);
    for (int64_t i = 0; i < n; i += 16) {
        __mmask16 mask = lanes_avx512vnni_first(n - i);
        __m512 x = _mm512_maskz_loadu_ps(mask, gate + i);
        __m512 y = _mm512_div_ps(x, _mm512_add_ps(one, exp_avx512vnni(_mm512_xor_ps(x, sign))));
        _mm512_mask_storeu_ps(gate + i, mask, _mm512_mul_ps(y, _mm512_maskz_loadu_ps(mask, up + i)));
    }
}
