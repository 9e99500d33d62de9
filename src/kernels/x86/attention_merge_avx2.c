#include "kernels/kernel_table.h"
#include "kernels/x86/exp_avx2.h"
#include "kernels/x86/lanes_avx2.h"

static inline __m256 merge(__m256 o, __m256 a, __m256 other, __m256 b) {
    return _mm256_fmadd_ps(o, a, _mm256_mul_ps(other, b));
}

void attention_merge_avx2(struct attention_state *into, const struct attention_state *part, int n_rows, int head_dim) {
    const __m256i mask = lanes_avx2_first(head_dim % 8);
    for (int r = 0; r < n_rows; r++) {
        float max = into->max[r] > part->max[r] ? into->max[r] : part->max[r];
        __m256 a = exp_avx2(_mm256_set1_ps(into->max[r] - max)), b = exp_avx2(_mm256_set1_ps(part->max[r] - max));
        into->max[r] = max;
        into->denom[r] = __builtin_fmaf(into->denom[r], _mm256_cvtss_f32(a), part->denom[r] * _mm256_cvtss_f32(b));
        float *o = into->o + r * head_dim;
        const float *other = part->o + r * head_dim;
        int i = 0;
        for (; i + 8 <= head_dim; i += 8)
            _mm256_storeu_ps(o + i, merge(_mm256_loadu_ps(o + i), a, _mm256_loadu_ps(other + i), b));
        if (i == head_dim) continue;
        __m256 merged = merge(_mm256_maskload_ps(o + i, mask), a, _mm256_maskload_ps(other + i, mask), b);
        _mm256_maskstore_ps(o + i, mask, merged);
    }
}
