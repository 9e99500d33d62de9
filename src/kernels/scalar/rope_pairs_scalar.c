#include "kernels/kernel_table.h"

void rope_pairs_scalar(float *x, const float *angles, int n_heads, int head_stride, int n_pairs) {
    for (int head = 0; head < n_heads; head++, x += head_stride)
        for (int i = 0; i < n_pairs; i++) {
            float a = x[2 * i], b = x[2 * i + 1], cosine = angles[2 * i], sine = angles[2 * i + 1];
            x[2 * i] = __builtin_fmaf(a, cosine, -(b * sine));
            x[2 * i + 1] = __builtin_fmaf(a, sine, b * cosine);
        }
}
