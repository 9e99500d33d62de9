#include "kernels/kernel_table.h"
#include "kernels/x86/exp_avx2.h"
#include "kernels/x86/gate_gelu.h"
#include "kernels/x86/lanes_avx2.h"

static inline __m256 gate_gelu(__m256 x, __m256 up) {
    __m256 square = _mm256_mul_ps(_mm256_mul_ps(_mm256_set1_ps(GELU_CUBIC), x), x);
    __m256 u = _mm256_mul_ps(_mm256_set1_ps(GELU_TWO_SQRT_2_OVER_PI), _mm256_fmadd_ps(square, x, x));
    __m256 e = exp_avx2(_mm256_xor_ps(u, _mm256_set1_ps(-0.0f)));
    return _mm256_mul_ps(_mm256_div_ps(x, _mm256_add_ps(_mm256_set1_ps(1.0f), e)), up);
}

void gate_gelu_avx2(float *gate, const float *up, int64_t n) {
    int64_t i = 0;
    for (; i + 8 <= n; i += 8)
        _mm256_storeu_ps(gate + i, gate_gelu(_mm256_loadu_ps(gate + i), _mm256_loadu_ps(up + i)));
    if (i == n) return;
    __m256i mask = lanes_avx2_first((int)(n - i));
    __m256 y = gate_gelu(_mm256_maskload_ps(gate + i, mask), _mm256_maskload_ps(up + i, mask));
    _mm256_maskstore_ps(gate + i, mask, y);
}
