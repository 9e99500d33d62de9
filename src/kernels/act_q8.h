/* act_q8: int8 activations, the right-hand operand of every quantized GEMM.
 *
 * A row of k values is cut into blocks of 32, each with its own scale. The sums let a kernel that multiplies unsigned
 * weights start its dot at the offset correction (nsum << 3 for an offset of 8) or add a minimum (dsum).
 * All arrays are row-major and 64-byte aligned; k is a multiple of 32. */
#ifndef KVICK_KERNELS_ACT_Q8_H
#define KVICK_KERNELS_ACT_Q8_H

#include <stddef.h>
#include <stdint.h>

#define ACT_Q8_BLOCK 32

struct act_q8 {
    int8_t *q;       /* [n_rows][k], -127..127 */
    float *d;        /* [n_rows][k / 32] scale */
    float *dsum;     /* [n_rows][k / 32] d * (sum of q), rounded once */
    int32_t *nsum32; /* [n_rows][k / 32] minus the sum of q over the block */
    int32_t *nsum16; /* [n_rows][k / 16] the same over each half */
};

/* Bytes of all five arrays together, each padded to 64 bytes. */
static inline size_t act_q8_bytes(int n_rows, int k) {
    size_t n_blocks = (size_t)n_rows * (size_t)(k / ACT_Q8_BLOCK);
    return (n_blocks * 32 + 63) / 64 * 64 + 3 * ((n_blocks * 4 + 63) / 64 * 64) + (n_blocks * 8 + 63) / 64 * 64;
}

/* The arrays laid out one after the other in memory of act_q8_bytes(n_rows, k). */
static inline struct act_q8 act_q8_at(void *memory, int n_rows, int k) {
    size_t n_blocks = (size_t)n_rows * (size_t)(k / ACT_Q8_BLOCK), word_bytes = (n_blocks * 4 + 63) / 64 * 64;
    char *p = memory;
    struct act_q8 act = {.q = (int8_t *)p};
    p += (n_blocks * 32 + 63) / 64 * 64;
    act.d = (float *)p;
    act.dsum = (float *)(p + word_bytes);
    act.nsum32 = (int32_t *)(p + 2 * word_bytes);
    act.nsum16 = (int32_t *)(p + 3 * word_bytes);
    return act;
}

/* The same activations from row row_idx on. */
static inline struct act_q8 act_q8_from_row(struct act_q8 act, int row_idx, int k) {
    size_t n_blocks = (size_t)row_idx * (size_t)(k / ACT_Q8_BLOCK);
    return (struct act_q8){act.q + n_blocks * 32, act.d + n_blocks, act.dsum + n_blocks, act.nsum32 + n_blocks,
                           act.nsum16 + 2 * n_blocks};
}

#endif
