#include "kernels/kernel_table.h"
#include "kernels/x86/lanes_avx2.h"

struct angles {
    __m256 cosine, sine;
};

/* Pairs 0..7 and then the same in two vectors. */
static inline struct angles deinterleave(__m256 low, __m256 high) {
    __m256 a = _mm256_permute2f128_ps(low, high, 0x20), b = _mm256_permute2f128_ps(low, high, 0x31);
    return (struct angles){_mm256_shuffle_ps(a, b, 0x88), _mm256_shuffle_ps(a, b, 0xdd)};
}

void rope_halves_avx2(float *x, const float *angles, int n_heads, int head_stride, int n_pairs) {
    for (int i = 0; i < n_pairs; i += 8) {
        int n = n_pairs - i;
        float *first = x + i, *second = x + i + n_pairs;
        if (n >= 8) {
            struct angles now = deinterleave(_mm256_loadu_ps(angles + 2 * i), _mm256_loadu_ps(angles + 2 * i + 8));
            for (int head = 0; head < n_heads; head++, first += head_stride, second += head_stride) {
                __m256 a = _mm256_loadu_ps(first), b = _mm256_loadu_ps(second);
                _mm256_storeu_ps(first, _mm256_fmsub_ps(a, now.cosine, _mm256_mul_ps(b, now.sine)));
                _mm256_storeu_ps(second, _mm256_fmadd_ps(a, now.sine, _mm256_mul_ps(b, now.cosine)));
            }
            continue;
        }
        __m256i mask = lanes_avx2_first(n);
        __m256 low = _mm256_maskload_ps(angles + 2 * i, lanes_avx2_first(2 * n)), high = _mm256_setzero_ps();
        if (n > 4) high = _mm256_maskload_ps(angles + 2 * i + 8, lanes_avx2_first(2 * n - 8));
        struct angles now = deinterleave(low, high);
        for (int head = 0; head < n_heads; head++, first += head_stride, second += head_stride) {
            __m256 a = _mm256_maskload_ps(first, mask), b = _mm256_maskload_ps(second, mask);
            _mm256_maskstore_ps(first, mask, _mm256_fmsub_ps(a, now.cosine, _mm256_mul_ps(b, now.sine)));
            _mm256_maskstore_ps(second, mask, _mm256_fmadd_ps(a, now.sine, _mm256_mul_ps(b, now.cosine)));
        }
    }
}
