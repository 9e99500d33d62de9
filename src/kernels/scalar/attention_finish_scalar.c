#include "kernels/kernel_table.h"

void attention_finish_scalar(const float *o, float denom, float *out, int head_dim) {
    for (int d = 0; d < head_dim; d++) out[d] = o[d] / denom + 0.0f;
}
