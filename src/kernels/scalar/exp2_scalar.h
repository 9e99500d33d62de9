/* exp2_scalar: 2^x for x <= 0 as the int8 attention computes it, operation by operation.
 *
 * Below EXP2_MIN it is 2^EXP2_MIN, at 0 exactly 1. |relative error| <= 1.1e-4, a twentieth of the rounding that a
 * weight gets afterwards. Source of the polynomial: least maximum of the relative error with the constant term held
 * at 1. */
#ifndef KVICK_KERNELS_SCALAR_EXP2_SCALAR_H
#define KVICK_KERNELS_SCALAR_EXP2_SCALAR_H

#include <stdint.h>
#include <string.h>

#define EXP2_MIN (-100.0f)
#define EXP2_LOG2E 1.44269504f
#define EXP2_ROUND 12582912.0f /* 1.5 * 2^23: adding it rounds to a whole number, held in the low bits */
#define EXP2_C3 5.5008952e-2f
#define EXP2_C2 2.4221101e-1f
#define EXP2_C1 6.9328290e-1f

static inline float exp2_scalar(float x) {
    x = x > EXP2_MIN ? x : EXP2_MIN;
    float shifted = x + EXP2_ROUND, r = x - (shifted - EXP2_ROUND), power;
    float p = __builtin_fmaf(__builtin_fmaf(EXP2_C3, r, EXP2_C2), r, EXP2_C1);
    p = __builtin_fmaf(p, r, 1.0f);
    uint32_t bits, n;
    memcpy(&bits, &p, sizeof bits);
    memcpy(&n, &shifted, sizeof n);
    bits += n << 23; /* p's exponent moves by n */
    memcpy(&power, &bits, sizeof power);
    return power;
}

#endif
