#include "kernels/kernel_table.h"
#include "kernels/x86/lanes_avx2.h"

void add_avx2(float *x, const float *y, int64_t n) {
    int64_t i = 0;
    for (; i + 8 <= n; i += 8) _mm256_storeu_ps(x + i, _mm256_add_ps(_mm256_loadu_ps(x + i), _mm256_loadu_ps(y + i)));
    if (i == n) return;
    __m256i mask = lanes_avx2_first((int)(n - i));
    __m256 sum = _mm256_add_ps(_mm256_maskload_ps(x + i, mask), _mm256_maskload_ps(y + i, mask));
    _mm256_maskstore_ps(x + i, mask, sum);
}
