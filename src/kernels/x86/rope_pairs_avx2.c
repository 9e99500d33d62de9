#include "kernels/kernel_table.h"
#include "kernels/x86/lanes_avx2.h"

static inline __m256 rotate(__m256 ab, __m256 cosine_sine) {
    __m256 sine_cosine = _mm256_permute_ps(cosine_sine, 0xb1);
    __m256 crossed = _mm256_mul_ps(_mm256_movehdup_ps(ab), sine_cosine);
    return _mm256_fmaddsub_ps(_mm256_moveldup_ps(ab), cosine_sine, crossed);
}

void rope_pairs_avx2(float *x, const float *angles, int n_heads, int head_stride, int n_pairs) {
    const int n = 2 * n_pairs;
    const __m256i mask = lanes_avx2_first(n % 8);
    for (int head = 0; head < n_heads; head++, x += head_stride) {
        int i = 0;
        for (; i + 8 <= n; i += 8) _mm256_storeu_ps(x + i, rotate(_mm256_loadu_ps(x + i), _mm256_loadu_ps(angles + i)));
        if (i == n) continue;
        __m256 ab = rotate(_mm256_maskload_ps(x + i, mask), _mm256_maskload_ps(angles + i, mask));
        _mm256_maskstore_ps(x + i, mask, ab);
    }
}
