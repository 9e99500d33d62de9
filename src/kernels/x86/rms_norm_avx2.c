#include <math.h>

#include "kernels/kernel_table.h"
#include "kernels/x86/lanes_avx2.h"

/* 16 lanes as low and high. */
static float sum_of_squares(const float *x, int n) {
    __m256 low = _mm256_setzero_ps(), high = low;
    int i = 0;
    for (; i + 16 <= n; i += 16) {
        __m256 a = _mm256_loadu_ps(x + i), b = _mm256_loadu_ps(x + i + 8);
        low = _mm256_fmadd_ps(a, a, low);
        high = _mm256_fmadd_ps(b, b, high);
    }
    if (i < n) {
        __m256 a = _mm256_maskload_ps(x + i, lanes_avx2_first(n - i));
        low = _mm256_fmadd_ps(a, a, low);
    }
    if (i + 8 < n) {
        __m256 b = _mm256_maskload_ps(x + i + 8, lanes_avx2_first(n - i - 8));
        high = _mm256_fmadd_ps(b, b, high);
    }
    return lanes_avx2_tree(low, high);
}

void rms_norm_avx2(const float *x, const float *weight, float eps, float *out, int n_rows, int n) {
    for (int row = 0; row < n_rows; row++, x += n, out += n) {
        __m256 scale = _mm256_set1_ps(1.0f / sqrtf(sum_of_squares(x, n) / (float)n + eps));
        int i = 0;
        for (; i + 8 <= n; i += 8) {
            __m256 v = _mm256_mul_ps(_mm256_loadu_ps(x + i), scale);
            _mm256_storeu_ps(out + i, _mm256_mul_ps(v, _mm256_loadu_ps(weight + i)));
        }
        if (i == n) continue;
        __m256i mask = lanes_avx2_first(n - i);
        __m256 v = _mm256_mul_ps(_mm256_maskload_ps(x + i, mask), scale);
        _mm256_maskstore_ps(out + i, mask, _mm256_mul_ps(v, _mm256_maskload_ps(weight + i, mask)));
    }
}
