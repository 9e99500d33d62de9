#include "kernels/kernel_table.h"
#include "kernels/scalar/exp_scalar.h"

/* 0.5 x (1 + tanh(u)) = x / (1 + exp(-2u)), u = sqrt(2/pi) (x + 0.044715 x^3).   Source: Hendrycks and Gimpel 2016. */
#define GELU_TWO_SQRT_2_OVER_PI 1.5957691216f
#define GELU_CUBIC 0.044715f

void gate_gelu_scalar(float *gate, const float *up, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        float x = gate[i];
        float cubic = __builtin_fmaf(GELU_CUBIC * x * x, x, x);
        gate[i] = x / (1.0f + exp_scalar(-(GELU_TWO_SQRT_2_OVER_PI * cubic))) * up[i];
    }
}
