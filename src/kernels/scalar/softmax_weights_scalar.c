#include "kernels/kernel_table.h"
#include "kernels/scalar/exp_scalar.h"

void softmax_weights_scalar(const float *x, float shift, float divisor, float *out, int64_t n) {
    for (int64_t i = 0; i < n; i++) out[i] = exp_scalar((x[i] - shift) / divisor);
}
