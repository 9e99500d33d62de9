#include "kernels/kernel_table.h"
#include "kernels/x86/lanes_avx512vnni.h"

void attention_finish_avx512vnni(const float *o, float denom, float *out, int head_dim) {
    const __m512 divisor = _mm512_set1_ps(denom);
    for (int i = 0; i < head_dim; i += 16) {
        __mmask16 mask = lanes_avx512vnni_first(head_dim - i);
        __m512 quotient = _mm512_div_ps(_mm512_maskz_loadu_ps(mask, o + i), divisor);
        _mm512_mask_storeu_ps(out + i, mask, _mm512_add_ps(quotient, _mm512_setzero_ps()));
    }
}
