/* Packed weights of every type against the same weights as floats, in a whole model. */
#include <math.h>
#include <unistd.h>

#include "base/cpu.h"
#include "base/mem.h"
#include "kernels/dequantize.h"
#include "support/model_file.h"
#include "support/model_run.h"
#include "support/test.h"

#define N_TOKENS 24
#define N_LOGITS ((size_t)N_TOKENS * MODEL_FILE_N_VOCAB)

/* Returns the bytes of the packed weights. */
static size_t run(const char *path, enum activation_form form, float *out_logits) {
    struct model_run_options options = {.kv_dtype = DTYPE_F32,
                                        .n_threads = 1,
                                        .block_tokens = 16,
                                        .max_tokens = 64,
                                        .max_rows = N_TOKENS,
                                        .max_logit_rows = N_TOKENS,
                                        .tiers = cpu_detect(),
                                        .activations = form};
    uint32_t ids[N_TOKENS];
    struct model_run run;
    model_file_random_ids(5, MODEL_FILE_N_VOCAB, ids, N_TOKENS);
    model_run_open(&run, path, &options);
    model_run_logits(&run, ids, N_TOKENS, 0, out_logits);
    size_t n_bytes = forward_weight_bytes(run.forward);
    model_run_close(&run);
    return n_bytes;
}

/* Root mean square of the difference over that of the wanted. */
static double distance(const float *wanted, const float *got) {
    double sum = 0, of_wanted = 0;
    for (size_t i = 0; i < N_LOGITS; i++) {
        double difference = (double)got[i] - (double)wanted[i];
        sum += difference * difference;
        of_wanted += (double)wanted[i] * (double)wanted[i];
    }
    return sqrt(sum / of_wanted);
}

static void packed_weights_answer_like_floats(void **state) {
    (void)state;
    float *wanted = mem_alloc_array(N_LOGITS, sizeof *wanted), *got = mem_alloc_array(N_LOGITS, sizeof *got);
    int n_types = 0;
    assert_true(wanted && got);
    for (enum dtype dtype = 0; dtype < DTYPE_N; dtype++) {
        char path[MODEL_FILE_MAX_PATH];
        if (dtype_block_elements(dtype) == 1 || !dequantize_is_known(dtype)) continue;
        model_file_make(dtype, 9, path);
        size_t float_bytes = run(path, ACTIVATIONS_F32, wanted);
        size_t bytes = run(path, ACTIVATIONS_INT16, got);
        unlink(path);
        double apart = distance(wanted, got);
        if (!(apart < 2e-4)) fail_msg("%s: packed weights give logits that are %g apart", dtype_name(dtype), apart);
        if (bytes * 3 > float_bytes)
            fail_msg("%s: %zu bytes packed, %zu as floats", dtype_name(dtype), bytes, float_bytes);
        n_types++;
    }
    assert_int_equal(n_types, 22);
    mem_free(wanted);
    mem_free(got);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(packed_weights_answer_like_floats)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
