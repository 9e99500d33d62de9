#include <math.h>

#include "kernels/kernel_table.h"

void rms_norm_scalar(const float *x, const float *weight, float eps, float *out, int n_rows, int n) {
    for (int row = 0; row < n_rows; row++, x += n, out += n) {
        float lane[16] = {0};
        for (int i = 0; i < n; i++) lane[i % 16] = __builtin_fmaf(x[i], x[i], lane[i % 16]);
        for (int half = 8; half > 0; half /= 2)
            for (int i = 0; i < half; i++) lane[i] += lane[i + half];
        float scale = 1.0f / sqrtf(lane[0] / (float)n + eps);
        for (int i = 0; i < n; i++) out[i] = x[i] * scale * weight[i];
    }
}
