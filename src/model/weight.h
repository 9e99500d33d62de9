/* weight: one tensor of the model, bound to its bytes.
 *
 * Thread: any, const once packed. */
#ifndef KVICK_MODEL_WEIGHT_H
#define KVICK_MODEL_WEIGHT_H

#include <stddef.h>

#include "kernels/act_q8.h"
#include "kernels/dtype.h"

/* Order of the packed bytes. */
enum weight_order {
    WEIGHT_TILES,  /* pack.h */
    WEIGHT_VECTOR, /* k floats */
    WEIGHT_ROWS    /* as in the file: a table whose rows are looked up */
};

struct weight {
    enum dtype dtype;          /* in the file */
    enum dtype tile_dtype;     /* of the packed tiles; F32 where the type has no tiles of its own */
    enum act_q8_form act_form; /* of the activations that meet quantized tiles */
    enum weight_order order;
    int n_out, k;           /* [n_out][k]; a vector has n_out = 1 */
    const void *file_bytes; /* row order, in the mapping; not read once packed */
    void *packed;           /* NULL until packed */
};

#endif
