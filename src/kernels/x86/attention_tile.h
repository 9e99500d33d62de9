/* attention_tile: which keys a call of the attention visits; the same for every tier and type. */
#ifndef KVICK_KERNELS_X86_ATTENTION_TILE_H
#define KVICK_KERNELS_X86_ATTENTION_TILE_H

#include "kernels/kernel_ops.h"

/* The keys that any row sees, within the call's: [*out_first, *out_last]. */
static inline void attention_tile_range(const struct attention_rows *rows, int key_end, int *out_first, int *out_last) {
    *out_first = rows->first_key[0], *out_last = rows->last_key[0];
    for (int r = 1; r < rows->n_rows; r++) {
        if (rows->first_key[r] < *out_first) *out_first = rows->first_key[r];
        if (rows->last_key[r] > *out_last) *out_last = rows->last_key[r];
    }
    if (*out_last > key_end - 1) *out_last = key_end - 1;
}

#endif
