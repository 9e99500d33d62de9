#include "kernels/kernel_table.h"
#include "kernels/scalar/exp_scalar.h"

void gate_silu_scalar(float *gate, const float *up, int64_t n) {
    for (int64_t i = 0; i < n; i++) gate[i] = gate[i] / (1.0f + exp_scalar(-gate[i])) * up[i];
}
