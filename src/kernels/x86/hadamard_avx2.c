#include <immintrin.h>

#include "kernels/kernel_table.h"

/* One stage inside a vector: a and b of each pair are half lanes apart. */
static inline __m256 stage(__m256 x, __m256 swapped, __m256 sign_of_b) {
    return _mm256_add_ps(swapped, _mm256_xor_ps(x, sign_of_b)); /* a + b, b's place: a + -b, as a - b */
}

static inline __m256 eight(__m256 x) {
    const float m = -0.0f, p = 0.0f;
    x = stage(x, _mm256_permute_ps(x, 0xb1), _mm256_setr_ps(p, m, p, m, p, m, p, m));
    x = stage(x, _mm256_permute_ps(x, 0x4e), _mm256_setr_ps(p, p, m, m, p, p, m, m));
    return stage(x, _mm256_permute2f128_ps(x, x, 0x01), _mm256_setr_ps(p, p, p, p, m, m, m, m));
}

void hadamard_avx2(const float *x, float *out, float factor, int head_dim) {
    const int n = head_dim / 8, piece = hadamard_piece(head_dim) / 8;
    __m256 y[ATTENTION_MAX_HEAD_DIM / 8];
    for (int i = 0; i < n; i++) y[i] = eight(_mm256_loadu_ps(x + 8 * i));
    for (int half = 1; half < piece; half *= 2)
        for (int i = 0; i < n; i++) {
            if (i & half) continue;
            __m256 a = y[i], b = y[i + half];
            y[i] = _mm256_add_ps(a, b), y[i + half] = _mm256_sub_ps(a, b);
        }
    for (int i = 0; i < n; i++) _mm256_storeu_ps(out + 8 * i, _mm256_mul_ps(y[i], _mm256_set1_ps(factor)));
}
