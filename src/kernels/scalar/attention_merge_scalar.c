#include "kernels/kernel_table.h"
#include "kernels/scalar/exp_scalar.h"

void attention_merge_scalar(struct attention_state *into, const struct attention_state *part, int n_rows,
                            int head_dim) {
    for (int r = 0; r < n_rows; r++) {
        float max = into->max[r] > part->max[r] ? into->max[r] : part->max[r];
        float a = exp_scalar(into->max[r] - max), b = exp_scalar(part->max[r] - max);
        into->max[r] = max;
        into->denom[r] = __builtin_fmaf(into->denom[r], a, part->denom[r] * b);
        for (int i = r * head_dim; i < (r + 1) * head_dim; i++)
            into->o[i] = __builtin_fmaf(into->o[i], a, part->o[i] * b);
    }
}
