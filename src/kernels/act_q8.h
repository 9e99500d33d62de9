/* act_q8: integer activations, the right-hand operand of every quantized GEMM.
 *
 * A row of k values is cut into blocks of 32, each with its own scale. In the int8 form a value is d * q, q in
 * -127..127. In the int16 form it is d * n with n = 128 * q + q_low, n in -16256..16256 and q_low in -64..63: two int8
 * products make one. n is q in the int8 form. The sums let a kernel that multiplies unsigned weights start its dot at
 * the offset correction (nsum << 3 for an offset of 8) or add a minimum (dsum).
 * All arrays are row-major and k is a multiple of 32. */
#ifndef KVICK_KERNELS_ACT_Q8_H
#define KVICK_KERNELS_ACT_Q8_H

#include <stddef.h>
#include <stdint.h>

#define ACT_Q8_BLOCK 32

enum act_q8_form { ACT_INT8, ACT_INT16 };

struct act_q8 {
    int8_t *q;       /* [n_rows][k] */
    int8_t *q_low;   /* [n_rows][k], NULL in the int8 form */
    float *d;        /* [n_rows][k / 32] scale */
    float *dsum;     /* [n_rows][k / 32] d * (sum of n), rounded once */
    int32_t *nsum32; /* [n_rows][k / 32] minus the sum of n over the block */
    int32_t *nsum16; /* [n_rows][k / 16] the same over each half */
};

/* Bytes of all arrays together, each padded to 64 bytes. */
static inline size_t act_q8_bytes(enum act_q8_form form, int n_rows, int k) {
    size_t n_blocks = (size_t)n_rows * (size_t)(k / ACT_Q8_BLOCK), q_bytes = (n_blocks * 32 + 63) / 64 * 64;
    return (form == ACT_INT16 ? 2 : 1) * q_bytes + 3 * ((n_blocks * 4 + 63) / 64 * 64) + (n_blocks * 8 + 63) / 64 * 64;
}

/* The arrays laid out one after the other in memory of act_q8_bytes(form, n_rows, k). */
static inline struct act_q8 act_q8_at(void *memory, enum act_q8_form form, int n_rows, int k) {
    size_t n_blocks = (size_t)n_rows * (size_t)(k / ACT_Q8_BLOCK), word_bytes = (n_blocks * 4 + 63) / 64 * 64;
    size_t q_bytes = (n_blocks * 32 + 63) / 64 * 64;
    char *p = memory;
    struct act_q8 act = {.q = (int8_t *)p};
    p += q_bytes;
    if (form == ACT_INT16) {
        act.q_low = (int8_t *)p;
        p += q_bytes;
    }
    act.d = (float *)p;
    act.dsum = (float *)(p + word_bytes);
    act.nsum32 = (int32_t *)(p + 2 * word_bytes);
    act.nsum16 = (int32_t *)(p + 3 * word_bytes);
    return act;
}

/* The same activations from row row_idx on. */
static inline struct act_q8 act_q8_from_row(struct act_q8 act, int row_idx, int k) {
    size_t n_blocks = (size_t)row_idx * (size_t)(k / ACT_Q8_BLOCK);
    return (struct act_q8){.q = act.q + n_blocks * 32,
                           .q_low = act.q_low ? act.q_low + n_blocks * 32 : NULL,
                           .d = act.d + n_blocks,
                           .dsum = act.dsum + n_blocks,
                           .nsum32 = act.nsum32 + n_blocks,
                           .nsum16 = act.nsum16 + 2 * n_blocks};
}

#endif
