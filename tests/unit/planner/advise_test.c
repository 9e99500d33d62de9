#include "planner/advise.h"

#include "support/test.h"

static struct model_sizes sizes;

static void read(const char *text) {
    struct status_note note = {0};
    if (model_sizes_from_text(&sizes, text, &note)) fail_msg("%s", note.text);
}

static const struct hw_rates machine = {
    .gops = 1000, .gb_s = 50, .min_prefill = 0.25, .max_prefill = 0.5, .min_decode = 0.5, .max_decode = 1};

static void the_sketch_of_everybody_gives_its_bytes(void **state) {
    (void)state;
    read("layers=32,kv_heads=8,head_dim=128");
    assert_true(16 * advise_sequence_bytes(&sizes, DTYPE_F16, 8192, 16) == 17179869184.0);
    assert_true(advise_token_bytes(&sizes, DTYPE_F16) == 131072);
}

static void query_heads_give_the_wrong_figure(void **state) {
    (void)state;
    read("layers=32,heads=32,kv_heads=8,head_dim=128");
    assert_true(advise_token_bytes_by_query_heads(&sizes, DTYPE_F16) == 4 * advise_token_bytes(&sizes, DTYPE_F16));
    read("layers=2,heads=16,latent=576");
    assert_true(advise_token_bytes(&sizes, DTYPE_F16) == 2 * 576 * 2);
}

/* int8 has a float per K and V of a head, q8_0 a half per 32 numbers. */
static void scales_are_counted(void **state) {
    (void)state;
    read("layers=30,kv_heads=3,head_dim=64");
    assert_true(advise_token_bytes(&sizes, DTYPE_I8) == 30 * 3 * 2 * (64 + 4));
    assert_true(advise_token_bytes(&sizes, DTYPE_Q8_0) == 30 * 3 * 2 * 2 * 34);
    read("layers=2,heads=16,latent=576");
    assert_true(advise_token_bytes(&sizes, DTYPE_Q8_0) == 2 * 576 / 32 * 34);
}

static void windows_end_the_growth(void **state) {
    (void)state;
    read("layers=6,kv_heads=1,head_dim=64,window=512,period=6");
    double layer = 2 * 64 * 2;
    assert_true(advise_sequence_bytes(&sizes, DTYPE_F16, 4096, 1) == layer * (5 * 512 + 4096));
    assert_true(advise_sequence_bytes(&sizes, DTYPE_F16, 256, 1) == layer * 6 * 256);
    /* a window in blocks reaches into one more */
    assert_true(advise_sequence_bytes(&sizes, DTYPE_F16, 4096, 16) == layer * (5 * (512 + 16) + 4096));
}

static void sessions_share_what_weights_leave(void **state) {
    (void)state;
    read("layers=2,kv_heads=1,heads=1,head_dim=64,d_model=64,d_ff=64,vocab=64,bits=16");
    double each = advise_sequence_bytes(&sizes, DTYPE_F16, 1024, 16), weights = (double)sizes.weight_bytes;
    assert_true(weights > 0);
    assert_int_equal(advise_n_sessions(&sizes, DTYPE_F16, 1024, 16, weights + 3.5 * each), 3);
    assert_int_equal(advise_n_sessions(&sizes, DTYPE_F16, 1024, 16, weights - 1), 0);
}

/* Counted one row and one key at a time. */
static void the_two_terms_are_those_that_are_counted(void **state) {
    (void)state;
    read("layers=4,heads=8,kv_heads=2,head_dim=32,d_model=256,d_ff=512,vocab=1000,window=16,period=2");
    const int n_tokens = 100;
    double linear = 0, attention = 0;
    for (int row = 0; row < n_tokens; row++) {
        for (int layer = 0; layer < 4; layer++) {
            linear += 2.0 * 256 * (8 * 32 + 2 * 2 * 32 + 8 * 32 + 3 * 512);
            for (int key = 0; key <= row; key++)
                if (layer % 2 == 1 || row - key < 16) attention += 2.0 * 8 * (32 + 32);
        }
    }
    struct advise_flops flops = advise_prompt_flops(&sizes, n_tokens);
    assert_true(flops.linear == linear);
    assert_true(flops.attention == attention);
    assert_true(flops.logits == 2.0 * 256 * 1000);
}

static void beyond_the_crossover_attention_is_more(void **state) {
    (void)state;
    read("layers=4,heads=8,kv_heads=2,head_dim=32,d_model=256,d_ff=512,vocab=1000");
    int n = (int)advise_crossover(&sizes);
    struct advise_flops below = advise_prompt_flops(&sizes, n - n / 50),
                        above = advise_prompt_flops(&sizes, n + n / 50);
    assert_true(below.attention < below.linear);
    assert_true(above.attention > above.linear);
    read("layers=4,heads=8,kv_heads=2,head_dim=32,d_model=256,d_ff=512,vocab=1000,window=64");
    assert_true(advise_crossover(&sizes) == 0);
}

static void times_are_limits_by_shares(void **state) {
    (void)state;
    read("layers=4,heads=8,kv_heads=2,head_dim=32,d_model=256,d_ff=512,vocab=1000,bits=8");
    struct advise_flops flops = advise_prompt_flops(&sizes, 2000);
    struct advise_range ttft = advise_ttft_ns(&sizes, &machine, 2000);
    double all = flops.linear + flops.attention + flops.logits;
    assert_true(ttft.min == all / 500 && ttft.max == all / 250);
    /* one session reads all weights and its own keys */
    struct advise_range step = advise_step_ns(&sizes, &machine, DTYPE_F16, 1, 1000, 0);
    double n_bytes = (double)sizes.step_bytes + advise_read_bytes(&sizes, DTYPE_F16, 1000);
    assert_true(step.min == n_bytes / 50 && step.max == n_bytes / 25);
    /* a long chunk is work */
    assert_true(advise_step_ns(&sizes, &machine, DTYPE_F16, 1, 1000, 1024).min > step.min);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_sketch_of_everybody_gives_its_bytes),
        cmocka_unit_test(query_heads_give_the_wrong_figure),
        cmocka_unit_test(scales_are_counted),
        cmocka_unit_test(windows_end_the_growth),
        cmocka_unit_test(sessions_share_what_weights_leave),
        cmocka_unit_test(the_two_terms_are_those_that_are_counted),
        cmocka_unit_test(beyond_the_crossover_attention_is_more),
        cmocka_unit_test(times_are_limits_by_shares),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
