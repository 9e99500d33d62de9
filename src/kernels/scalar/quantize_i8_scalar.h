/* quantize_i8_scalar: one head's values as int8 with one scale, the rule of quantize_q8 over a whole head. */
#ifndef KVICK_KERNELS_SCALAR_QUANTIZE_I8_SCALAR_H
#define KVICK_KERNELS_SCALAR_QUANTIZE_I8_SCALAR_H

#include <float.h>
#include <math.h>
#include <stdint.h>

/* Returns the scale. */
static inline float quantize_i8_scalar(const float *x, int8_t *out, int n) {
    float amax = 0;
    for (int i = 0; i < n; i++) amax = fabsf(x[i]) > amax ? fabsf(x[i]) : amax;
    float inverse = 127.0f / amax;
    if (!(inverse <= FLT_MAX)) inverse = 0.0f; /* amax is zero, or too small to be divided by: all q are 0 */
    for (int i = 0; i < n; i++) {
        float shifted = x[i] * inverse + 12582912.0f; /* 1.5 * 2^23: rounds to a whole number, ties to even */
        out[i] = (int8_t)(shifted - 12582912.0f);
    }
    return amax / 127.0f;
}

#endif
