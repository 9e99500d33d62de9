#include "kernels/kernel_table.h"
#include "kernels/x86/lanes_avx2.h"

void attention_finish_avx2(const float *o, float denom, float *out, int head_dim) {
    const __m256 divisor = _mm256_set1_ps(denom), zero = _mm256_setzero_ps();
    int i = 0;
    for (; i + 8 <= head_dim; i += 8)
        _mm256_storeu_ps(out + i, _mm256_add_ps(_mm256_div_ps(_mm256_loadu_ps(o + i), divisor), zero));
    if (i == head_dim) return;
    __m256i mask = lanes_avx2_first(head_dim - i);
    _mm256_maskstore_ps(out + i, mask, _mm256_add_ps(_mm256_div_ps(_mm256_maskload_ps(o + i, mask), divisor), zero));
}
