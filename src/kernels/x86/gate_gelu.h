/* gate_gelu: the constants of scalar/gate_gelu_scalar.c, where their meaning is. */
#ifndef KVICK_KERNELS_X86_GATE_GELU_H
#define KVICK_KERNELS_X86_GATE_GELU_H

#define GELU_TWO_SQRT_2_OVER_PI 1.5957691216f
#define GELU_CUBIC 0.044715f

#endif
