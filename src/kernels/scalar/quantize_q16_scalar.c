#include <float.h>
#include <math.h>

#include "kernels/kernel_table.h"

#define MAX_N 16256 /* 127 * 128 */

static int round_to_even(float value) {
    float shifted = value + 12582912.0f; /* 1.5 * 2^23 */
    return (int)(shifted - 12582912.0f);
}

void quantize_q16_scalar(const float *x, struct act_q8 *out, int n_rows, int k) {
    size_t n_blocks = (size_t)n_rows * (size_t)(k / ACT_Q8_BLOCK);
    for (size_t b = 0; b < n_blocks; b++) {
        const float *src = x + b * 32;
        float amax = 0;
        for (int i = 0; i < 32; i++) amax = fabsf(src[i]) > amax ? fabsf(src[i]) : amax;
        float inverse = MAX_N / amax;
        if (!(inverse <= FLT_MAX)) inverse = 0.0f; /* amax is zero, or too small to be divided by: all n are 0 */
        int32_t sums[2] = {0, 0};
        for (int i = 0; i < 32; i++) {
            int n = round_to_even(src[i] * inverse);
            int q = (n + 64) >> 7; /* to the nearest multiple of 128 */
            out->q[b * 32 + (size_t)i] = (int8_t)q;
            out->q_low[b * 32 + (size_t)i] = (int8_t)(n - 128 * q);
            sums[i / 16] += n;
        }
        out->d[b] = amax / MAX_N;
        out->dsum[b] = out->d[b] * (float)(sums[0] + sums[1]);
        out->nsum32[b] = -(sums[0] + sums[1]);
        out->nsum16[2 * b] = -sums[0];
        out->nsum16[2 * b + 1] = -sums[1];
    }
}
