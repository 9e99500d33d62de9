/* Query heads that share a kv head compute what they would with one of their own: a model whose kv heads are written
 * out for every query head, where no head is shared and nothing can be divided wrongly, gives the same bits.
 * CASE B47; counts that do not fit each other are refused in model_config_test and bad_files_test. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/cpu.h"
#include "base/mem.h"
#include "support/model_file.h"
#include "support/model_run.h"
#include "support/test.h"

#define N_TOKENS 70 /* more than a tile of keys */

static void run(const struct model_file_heads *heads, enum dtype kv_dtype, enum activation_form activations,
                float *out_logits) {
    char path[MODEL_FILE_MAX_PATH];
    uint32_t tokens[N_TOKENS];
    struct model_run model;
    struct model_run_options options = {.kv_dtype = kv_dtype,
                                        .n_threads = 2,
                                        .block_tokens = 16,
                                        .max_tokens = 128,
                                        .max_rows = N_TOKENS,
                                        .max_logit_rows = N_TOKENS,
                                        .tiers = cpu_detect(),
                                        .activations = activations};
    model_file_make_heads(DTYPE_F32, 47, heads, path);
    model_file_random_ids(3, MODEL_FILE_N_VOCAB, tokens, N_TOKENS);
    model_run_open(&model, path, &options);
    unlink(path);
    model_run_logits(&model, tokens, N_TOKENS, 33, out_logits);
    model_run_close(&model);
}

static void shared_heads_compute_as_own_ones(void **state) {
    /* Heads over kv heads is, and is not, the number of kv heads; a width of its own (6 * 64, 8 * 16: not d_model). */
    static const struct model_file_heads shapes[] = {
        {8, 2, 32, 1}, {6, 3, 64, 1}, {8, 1, 32, 1}, {32, 4, 16, 1}, {64, 8, 16, 1}};
    size_t n_bytes = (size_t)N_TOKENS * MODEL_FILE_N_VOCAB * sizeof(float);
    float *shared = mem_alloc(n_bytes), *own = mem_alloc(n_bytes), *before = mem_alloc(n_bytes);
    (void)state;
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        struct model_file_heads written = shapes[i];
        written.repeats = written.n_heads / written.n_kv_heads;
        for (int kind = 0; kind < (i < 2 ? 3 : 1); kind++) {
            static const enum dtype kv_dtypes[] = {DTYPE_F32, DTYPE_I8, DTYPE_Q8_0};
            enum dtype kv_dtype = kv_dtypes[kind];
            enum activation_form activations = kind ? ACTIVATIONS_INT8 : ACTIVATIONS_F32;
            run(&shapes[i], kv_dtype, activations, shared);
            run(&written, kv_dtype, activations, own);
            if (memcmp(shared, own, n_bytes) != 0)
                fail_msg("%d heads on %d kv heads of %d, %s: other logits than with a kv head each", shapes[i].n_heads,
                         shapes[i].n_kv_heads, shapes[i].head_dim, dtype_name(kv_dtype));
        }
        assert_true(i == 0 || memcmp(shared, before, n_bytes) != 0); /* the shape matters at all */
        memcpy(before, shared, n_bytes);
    }
    mem_free(shared);
    mem_free(own);
    mem_free(before);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(shared_heads_compute_as_own_ones)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
