#include <string.h>

#include "kernels/kernel_table.h"

void hadamard_scalar(const float *x, float *out, float factor, int head_dim) {
    float y[ATTENTION_MAX_HEAD_DIM];
    int piece = hadamard_piece(head_dim);
    memcpy(y, x, (size_t)head_dim * sizeof *y);
    for (int half = 1; half < piece; half *= 2)
        for (int i = 0; i < head_dim; i++) {
            if (i & half) continue;
            float a = y[i], b = y[i + half];
            y[i] = a + b, y[i + half] = a - b;
        }
    for (int i = 0; i < head_dim; i++) out[i] = y[i] * factor;
}
