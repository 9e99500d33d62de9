#include "kernels/kernel_table.h"
#include "kernels/x86/exp_avx512vnni.h"
#include "kernels/x86/lanes_avx512vnni.h"

void attention_merge_avx512vnni(struct attention_state *into, const struct attention_state *part, int n_rows,
                                int head_dim) {
    for (int r = 0; r < n_rows; r++) {
        float max = into->max[r] > part->max[r] ? into->max[r] : part->max[r];
        __m512 a = exp_avx512vnni(_mm512_set1_ps(into->max[r] - max));
        __m512 b = exp_avx512vnni(_mm512_set1_ps(part->max[r] - max));
        into->max[r] = max;
        into->denom[r] = __builtin_fmaf(into->denom[r], _mm512_cvtss_f32(a), part->denom[r] * _mm512_cvtss_f32(b));
        float *o = into->o + r * head_dim;
        const float *other = part->o + r * head_dim;
        for (int i = 0; i < head_dim; i += 16) {
            __mmask16 mask = lanes_avx512vnni_first(head_dim - i);
            __m512 scaled = _mm512_mul_ps(_mm512_maskz_loadu_ps(mask, other + i), b);
            _mm512_mask_storeu_ps(o + i, mask, _mm512_fmadd_ps(_mm512_maskz_loadu_ps(mask, o + i), a, scaled));
        }
    }
}
