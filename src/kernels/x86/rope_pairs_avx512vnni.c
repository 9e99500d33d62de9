#include "kernels/kernel_table.h"
#include "kernels/x86/lanes_avx512vnni.h"

void rope_pairs_avx512vnni(float *x, const float *angles, int n_heads, int head_stride, int n_pairs) {
    for (int i = 0; i < 2 * n_pairs; i += 16) {
        __mmask16 mask = lanes_avx512vnni_first(2 * n_pairs - i);
        __m512 cosine_sine = _mm512_maskz_loadu_ps(mask, angles + i);
        __m512 sine_cosine = _mm512_permute_ps(cosine_sine, 0xb1);
        float *pair = x + i;
        for (int head = 0; head < n_heads; head++, pair += head_stride) {
            __m512 ab = _mm512_maskz_loadu_ps(mask, pair), a = _mm512_moveldup_ps(ab), b = _mm512_movehdup_ps(ab);
            ab = _mm512_fmaddsub_ps(a, cosine_sine, _mm512_mul_ps(b, sine_cosine));
            _mm512_mask_storeu_ps(pair, mask, ab);
        }
    }
}
