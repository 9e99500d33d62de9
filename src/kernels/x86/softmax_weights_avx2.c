#include "kernels/kernel_table.h"
#include "kernels/x86/exp_avx2.h"
#include "kernels/x86/lanes_avx2.h"

static inline __m256 weigh(__m256 x, float shift, float divisor) {
    return exp_avx2(_mm256_div_ps(_mm256_sub_ps(x, _mm256_set1_ps(shift)), _mm256_set1_ps(divisor)));
}

void softmax_weights_avx2(const float *x, float shift, float divisor, float *out, int64_t n) {
    int64_t i = 0;
    for (; i + 8 <= n; i += 8) _mm256_storeu_ps(out + i, weigh(_mm256_loadu_ps(x + i), shift, divisor));
    if (i == n) return;
    __m256i mask = lanes_avx2_first((int)(n - i));
    _mm256_maskstore_ps(out + i, mask, weigh(_mm256_maskload_ps(x + i, mask), shift, divisor));
}
