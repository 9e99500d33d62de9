#include "kernels/kernel_table.h"
#include "kernels/x86/lanes_avx512vnni.h"

void rope_halves_avx512vnni(float *x, const float *angles, int n_heads, int head_stride, int n_pairs) {
    const __m512i even = _mm512_set_epi32(30, 28, 26, 24, 22, 20, 18, 16, 14, 12, 10, 8, 6, 4, 2, 0);
    const __m512i odd = _mm512_add_epi32(even, _mm512_set1_epi32(1));
    for (int i = 0; i < n_pairs; i += 16) {
        int n_left = n_pairs - i;
        __mmask16 mask = lanes_avx512vnni_first(n_left);
        __m512 low = _mm512_maskz_loadu_ps(lanes_avx512vnni_first(2 * n_left), angles + 2 * i);
        __m512 high = _mm512_setzero_ps();
        if (n_left > 8) high = _mm512_maskz_loadu_ps(lanes_avx512vnni_first(2 * n_left - 16), angles + 2 * i + 16);
        __m512 cosine = _mm512_permutex2var_ps(low, even, high), sine = _mm512_permutex2var_ps(low, odd, high);
        float *first = x + i, *second = x + i + n_pairs;
        for (int head = 0; head < n_heads; head++, first += head_stride, second += head_stride) {
            __m512 a = _mm512_maskz_loadu_ps(mask, first), b = _mm512_maskz_loadu_ps(mask, second);
            _mm512_mask_storeu_ps(first, mask, _mm512_fmsub_ps(a, cosine, _mm512_mul_ps(b, sine)));
            _mm512_mask_storeu_ps(second, mask, _mm512_fmadd_ps(a, sine, _mm512_mul_ps(b, cosine)));
        }
    }
}
