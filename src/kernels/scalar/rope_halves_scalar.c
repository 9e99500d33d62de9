#include "kernels/kernel_table.h"

void rope_halves_scalar(float *x, const float *angles, int n_heads, int head_stride, int n_pairs) {
    for (int head = 0; head < n_heads; head++, x += head_stride)
        for (int i = 0; i < n_pairs; i++) {
            float a = x[i], b = x[i + n_pairs], cosine = angles[2 * i], sine = angles[2 * i + 1];
            x[i] = __builtin_fmaf(a, cosine, -(b * sine));
            x[i + n_pairs] = __builtin_fmaf(a, sine, b * cosine);
        }
}
