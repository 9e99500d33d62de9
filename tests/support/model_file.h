/* model_file: a small llama of random weights as a GGUF file, for tests that must not depend on downloads.
 *
 * d_model 256, d_ff 512, 2 layers, 4 heads of 64 on 2 kv heads, vocabulary 320, untied, context 4096; every matrix in
 * one type, whose weights have a standard deviation near 1/sqrt(k). */
#ifndef KVICK_TESTS_SUPPORT_MODEL_FILE_H
#define KVICK_TESTS_SUPPORT_MODEL_FILE_H

#include "kernels/dtype.h"

#define MODEL_FILE_N_VOCAB 320
#define MODEL_FILE_MAX_PATH 128

/* Types without a quantizer get random blocks with small scales. Fails the running test if the file cannot be written.
 * out_path: a new temporary file, the caller's to unlink. Equal seeds give equal files. */
void model_file_make(enum dtype dtype, uint64_t seed, char out_path[MODEL_FILE_MAX_PATH]);

/* Attention of another shape; all else as above. repeats: every kv head is written so many times, beside itself, which
 * changes nothing of what the model computes. */
struct model_file_heads {
    int n_heads, n_kv_heads, head_dim, repeats;
};
void model_file_make_heads(enum dtype dtype, uint64_t seed, const struct model_file_heads *heads,
                           char out_path[MODEL_FILE_MAX_PATH]);

/* n ids below n_vocab, a function of seed. */
void model_file_random_ids(uint64_t seed, int n_vocab, uint32_t *out_ids, int n);

#endif
