#include "engine/sampler.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "support/test.h"

#define N_DRAWS 10000
#define MAX_VOCAB 1000

static const struct sampling plain = {.temperature = 1, .top_p = 1};

static uint32_t pick(const struct sampling *sampling, const float *logits, int n_vocab, uint32_t position) {
    struct sampler sampler;
    assert_int_equal(sampler_init(&sampler, n_vocab), STATUS_OK);
    uint32_t token = sampler_pick(&sampler, sampling, logits, position);
    sampler_deinit(&sampler);
    assert_true(token < (uint32_t)n_vocab);
    return token;
}

/* Logits as a model gives them, the largest at `best` by a small margin. */
static void make_logits(float *logits, int n_vocab, int best) {
    for (int i = 0; i < n_vocab; i++) logits[i] = 20 * sinf((float)i * 0.37f) - 5;
    logits[best] = 15.01f;
}

/* ---- greedy ---- */

static void what_is_nearly_greedy_is_greedy(void **state) {
    (void)state;
    static const struct sampling cases[] = {
        {.temperature = 0, .top_p = 1},
        {.temperature = 1e-4f, .top_p = 1},
        {.temperature = 1e-10f, .top_p = 1},
        {.temperature = 1e-38f, .top_p = 1},
        {.temperature = 1e-45f, .top_p = 1}, /* the smallest number there is */
        {.temperature = 1e-45f, .top_p = 0.5f, .top_k = 7, .min_p = 0.1f},
        {.temperature = 1, .top_p = 1e-10f},
        {.temperature = 100, .top_p = FLT_MIN},
        {.temperature = 1, .top_p = 1, .top_k = 1},
        {.temperature = 100, .top_p = 1, .top_k = 1},
        {.temperature = 1, .top_p = 1, .min_p = 1},
    };
    static float logits[MAX_VOCAB];
    static const int bests[] = {0, 417, MAX_VOCAB - 1};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        for (int b = 0; b < 3; b++) {
            make_logits(logits, MAX_VOCAB, bests[b]);
            for (uint32_t position = 0; position < 50; position++)
                assert_int_equal(pick(&cases[i], logits, MAX_VOCAB, position), bests[b]);
        }
    }
}

static void of_equals_the_lowest_id_is_the_greedy_one(void **state) {
    (void)state;
    float logits[] = {1, 5, 2, 5, 5, -1};
    static const struct sampling cases[] = {{.temperature = 0, .top_p = 1},
                                            {.temperature = 1, .top_p = 1, .top_k = 1},
                                            {.temperature = 1, .top_p = 1e-10f}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        for (uint32_t position = 0; position < 50; position++)
            assert_int_equal(pick(&cases[i], logits, 6, position), 1);
    assert_int_equal(sampler_argmax(logits, 6), 1);
    /* top_k 2 of three equals: the two lower ids, both of them */
    struct sampling two = {.temperature = 1, .top_p = 1, .top_k = 2};
    int n_seen[6] = {0};
    for (uint32_t position = 0; position < 200; position++) n_seen[pick(&two, logits, 6, position)]++;
    assert_true(n_seen[1] > 50 && n_seen[3] > 50 && n_seen[1] + n_seen[3] == 200);
}

/* ---- distribution ---- */

#define N_VOCAB 8
static const float logits_of_eight[N_VOCAB] = {1.0f, 0.2f, 2.0f, -1.0f, 0.7f, 1.6f, -0.4f, 1.3f};

/* Chi-square of N_DRAWS picks against the softmax over the kept ids; ids that are not kept are never picked. */
static void expect_distribution(const struct sampling *asked, unsigned kept) {
    struct sampler sampler;
    int n_seen[N_VOCAB] = {0}, n_kept = 0;
    double p[N_VOCAB] = {0}, total = 0, chi2 = 0;
    assert_int_equal(sampler_init(&sampler, N_VOCAB), STATUS_OK);
    for (int i = 0; i < N_VOCAB; i++) {
        if (!(kept >> i & 1)) continue;
        p[i] = exp((double)logits_of_eight[i] / (double)asked->temperature);
        total += p[i];
        n_kept++;
    }
    for (uint32_t draw = 0; draw < N_DRAWS; draw++) {
        struct sampling sampling = *asked;
        sampling.seed = draw % 100;
        sampling.choice = draw / 100 % 4;
        n_seen[sampler_pick(&sampler, &sampling, logits_of_eight, draw)]++;
    }
    for (int i = 0; i < N_VOCAB; i++) {
        double expected = N_DRAWS * p[i] / total;
        if (!(kept >> i & 1)) {
            assert_int_equal(n_seen[i], 0);
            continue;
        }
        chi2 += (n_seen[i] - expected) * (n_seen[i] - expected) / expected;
    }
    print_message("%d kept, chi-square %.1f\n", n_kept, chi2);
    assert_true(chi2 < 36); /* 7 degrees of freedom: below in all but 7 of a million runs; seeds are fixed */
    sampler_deinit(&sampler);
}

/* Order of the eight: 2 5 7 0 4 1 6 3. */
static void picks_follow_the_softmax(void **state) {
    (void)state;
    expect_distribution(&plain, 0xff);
    expect_distribution(&(struct sampling){.temperature = 0.5f, .top_p = 1}, 0xff);
    expect_distribution(&(struct sampling){.temperature = 2, .top_p = 1}, 0xff);
    expect_distribution(&(struct sampling){.temperature = 1, .top_p = 1, .top_k = 1000}, 0xff);
}

static void filters_cut_and_renormalise(void **state) {
    (void)state;
    expect_distribution(&(struct sampling){.temperature = 1, .top_p = 1, .top_k = 3}, 1 << 2 | 1 << 5 | 1 << 7);
    /* shares at temperature 1: .321 .215 .160 .118 .087 .053 .029 .016: three reach .696 */
    expect_distribution(&(struct sampling){.temperature = 1, .top_p = 0.69f}, 1 << 2 | 1 << 5 | 1 << 7);
    expect_distribution(&(struct sampling){.temperature = 1, .top_p = 0.75f}, 1 << 2 | 1 << 5 | 1 << 7 | 1);
    /* relative to the likeliest: 1 .67 .50 .37 .27 .17 .09 .05 */
    expect_distribution(&(struct sampling){.temperature = 1, .top_p = 1, .min_p = 0.3f}, 1 << 2 | 1 << 5 | 1 << 7 | 1);
    /* at temperature 2 the shares are flatter: more pass the same floor */
    expect_distribution(&(struct sampling){.temperature = 2, .top_p = 1, .min_p = 0.35f}, 0xff & ~(1 << 3 | 1 << 6));
    expect_distribution(&(struct sampling){.temperature = 1, .top_p = 0.75f, .top_k = 2}, 1 << 2 | 1 << 5);
    expect_distribution(&(struct sampling){.temperature = 1, .top_p = 0.75f, .min_p = 0.6f}, 1 << 2 | 1 << 5);
}

static void seed_choice_and_position_decide_and_nothing_else(void **state) {
    (void)state;
    static float logits[MAX_VOCAB];
    for (int i = 0; i < MAX_VOCAB; i++) logits[i] = 0;
    struct sampler used;
    assert_int_equal(sampler_init(&used, MAX_VOCAB), STATUS_OK);
    int n_equal_seed = 0, n_equal_choice = 0, n_equal_position = 0;
    for (uint32_t i = 0; i < 100; i++) {
        struct sampling a = {.temperature = 1, .top_p = 1, .seed = 42}, b = a, c = a;
        b.seed = 43;
        c.choice = 1;
        uint32_t token = pick(&a, logits, MAX_VOCAB, i);
        /* a sampler that has answered others gives the same */
        n_equal_seed += sampler_pick(&used, &b, logits, i) == token;
        n_equal_choice += sampler_pick(&used, &c, logits, i) == token;
        n_equal_position += sampler_pick(&used, &a, logits, i + 1000) == token;
        assert_int_equal(sampler_pick(&used, &a, logits, i), token);
    }
    assert_true(n_equal_seed < 5 && n_equal_choice < 5 && n_equal_position < 5);
    sampler_deinit(&used);
}

/* ---- what no model should give ---- */

static void nan_is_never_picked(void **state) {
    (void)state;
    static const struct sampling cases[] = {{.temperature = 0, .top_p = 1},
                                            {.temperature = 1, .top_p = 1},
                                            {.temperature = 1e-30f, .top_p = 1},
                                            {.temperature = 1, .top_p = 1, .top_k = 3},
                                            {.temperature = 1, .top_p = 0.9f, .min_p = 0.01f}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        for (int first = 0; first < 2; first++) {
            float logits[] = {NAN, 1, NAN, 1.5f, NAN};
            if (first) logits[0] = 0.5f;
            for (uint32_t position = 0; position < 300; position++) {
                uint32_t token = pick(&cases[i], logits, 5, position);
                assert_true(!isnan(logits[token]));
            }
        }
        float none[] = {NAN, NAN, NAN};
        pick(&cases[i], none, 3, 1); /* some token, within the vocabulary */
    }
    float late[] = {NAN, NAN, -3, NAN, -2};
    assert_int_equal(sampler_argmax(late, 5), 4);
}

static void infinities_do_no_harm(void **state) {
    (void)state;
    float masked[] = {-INFINITY, 2, -INFINITY, 1}, all_masked[] = {-INFINITY, -INFINITY}, up[] = {0, INFINITY, 1};
    int n_seen[4] = {0};
    for (uint32_t position = 0; position < 500; position++) n_seen[pick(&plain, masked, 4, position)]++;
    assert_true(n_seen[0] == 0 && n_seen[2] == 0 && n_seen[1] > n_seen[3] && n_seen[3] > 0);
    pick(&plain, all_masked, 2, 0);
    assert_int_equal(pick(&plain, up, 3, 0), 1);
    float far[] = {-FLT_MAX, FLT_MAX, 0};
    for (uint32_t position = 0; position < 50; position++) assert_int_equal(pick(&plain, far, 3, position), 1);
    float single[] = {3};
    assert_int_equal(pick(&plain, single, 1, 0), 0);
}

/* ---- parameters ---- */

static void bad_parameters_are_named(void **state) {
    (void)state;
    static const struct {
        struct sampling sampling;
        const char *word;
    } cases[] = {
        {{.temperature = -0.1f, .top_p = 1}, "temperature -0.1"},
        {{.temperature = NAN, .top_p = 1}, "temperature"},
        {{.temperature = INFINITY, .top_p = 1}, "temperature inf"},
        {{.temperature = 101, .top_p = 1}, "temperature 101"},
        {{.temperature = 1, .top_p = 0}, "top_p 0"},
        {{.temperature = 1, .top_p = -0.1f}, "top_p -0.1"},
        {{.temperature = 1, .top_p = 1.5f}, "top_p 1.5"},
        {{.temperature = 1, .top_p = NAN}, "top_p"},
        {{.temperature = 1, .top_p = 1, .min_p = -0.5f}, "min_p -0.5"},
        {{.temperature = 1, .top_p = 1, .min_p = 1.5f}, "min_p 1.5"},
        {{.temperature = 1, .top_p = 1, .min_p = NAN}, "min_p"},
        {{.temperature = 1, .top_p = 1, .top_k = -1}, "top_k -1"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct status_note note = {0};
        assert_int_equal(sampler_check(&cases[i].sampling, &note), STATUS_INVALID);
        if (!strstr(note.text, cases[i].word)) fail_msg("no '%s' in: %s", cases[i].word, note.text);
        assert_int_equal(sampler_check(&cases[i].sampling, NULL), STATUS_INVALID);
    }
    static const struct sampling good[] = {
        {.temperature = 0, .top_p = 1},
        {.temperature = 100, .top_p = 1e-10f, .top_k = 1 << 30, .min_p = 1, .seed = UINT64_MAX, .choice = UINT32_MAX}};
    for (int i = 0; i < 2; i++) assert_int_equal(sampler_check(&good[i], NULL), STATUS_OK);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_nearly_greedy_is_greedy),
        cmocka_unit_test(of_equals_the_lowest_id_is_the_greedy_one),
        cmocka_unit_test(picks_follow_the_softmax),
        cmocka_unit_test(filters_cut_and_renormalise),
        cmocka_unit_test(seed_choice_and_position_decide_and_nothing_else),
        cmocka_unit_test(nan_is_never_picked),
        cmocka_unit_test(infinities_do_no_harm),
        cmocka_unit_test(bad_parameters_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
