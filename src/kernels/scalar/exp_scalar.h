/* exp_scalar: exp as all kernels compute it, operation by operation.
 *
 * Inputs above EXP_MAX are taken as EXP_MAX, inputs below EXP_MIN give +0. |relative error| <= 2^-22 between.
 * Source of the polynomial: Cephes expf (Moshier). */
#ifndef KVICK_KERNELS_SCALAR_EXP_SCALAR_H
#define KVICK_KERNELS_SCALAR_EXP_SCALAR_H

#include <stdint.h>
#include <string.h>

#define EXP_MAX 88.0f
#define EXP_MIN (-87.0f) /* above it 2^n is a normal number */
#define EXP_LOG2E 1.44269504f
#define EXP_LN2_HIGH 0.693359375f /* 9 bits: n * this is exact */
#define EXP_LN2_LOW (-2.12194440e-4f)
#define EXP_ROUND 12582912.0f /* 1.5 * 2^23: adding it rounds to a whole number, held in the low bits */
#define EXP_C5 1.9875691500e-4f
#define EXP_C4 1.3981999507e-3f
#define EXP_C3 8.3334519073e-3f
#define EXP_C2 4.1665795894e-2f
#define EXP_C1 1.6666665459e-1f
#define EXP_C0 5.0000001201e-1f

static inline float exp_scalar(float x) {
    if (!(x >= EXP_MIN)) return 0.0f;
    if (x > EXP_MAX) x = EXP_MAX;
    float shifted = __builtin_fmaf(x, EXP_LOG2E, EXP_ROUND);
    float n = shifted - EXP_ROUND;
    float r = __builtin_fmaf(n, -EXP_LN2_HIGH, x);
    r = __builtin_fmaf(n, -EXP_LN2_LOW, r);
    float p = EXP_C5;
    p = __builtin_fmaf(p, r, EXP_C4);
    p = __builtin_fmaf(p, r, EXP_C3);
    p = __builtin_fmaf(p, r, EXP_C2);
    p = __builtin_fmaf(p, r, EXP_C1);
    p = __builtin_fmaf(p, r, EXP_C0);
    p = __builtin_fmaf(p, r * r, r) + 1.0f;
    uint32_t bits;
    memcpy(&bits, &shifted, sizeof bits);
    bits = (bits << 23) + 0x3f800000u; /* the low bits of shifted are n modulo 2^22 */
    float power;
    memcpy(&power, &bits, sizeof power);
    return p * power;
}

#endif
