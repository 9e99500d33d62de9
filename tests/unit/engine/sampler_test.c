#include "engine/sampler.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "support/test.h"

#define N 50

static struct sampler sampler;
static float logits[N];

static int set_up(void **state) {
    (void)state;
    for (int i = 0; i < N; i++) logits[i] = (float)((i * 37) % N) / 8;
    logits[7] = 9; /* the likeliest */
    return sampler_init(&sampler, N) != STATUS_OK;
}

static int tear_down(void **state) {
    (void)state;
    sampler_deinit(&sampler);
    return 0;
}

static uint32_t pick(struct sampling sampling, uint32_t position) {
    return sampler_pick(&sampler, &sampling, logits, position);
}

static void these_are_all_greedy(void **state) {
    (void)state;
    const struct sampling samplings[] = {
        {.temperature = 0, .top_p = 1},
        {.temperature = 1e-4f, .top_p = 1},
        {.temperature = 1e-10f, .top_p = 1},
        {.temperature = 1e-45f, .top_p = 1},
        {.temperature = 1, .top_p = 1, .top_k = 1},
        {.temperature = 1, .top_p = 1e-10f},
        {.temperature = 1, .top_p = 1, .min_p = 1},
        {.temperature = 100, .top_p = 1e-10f},
        {.temperature = 1e-45f, .top_p = 0.5f, .top_k = N + 5, .min_p = 0.1f},
    };
    for (size_t i = 0; i < sizeof samplings / sizeof samplings[0]; i++)
        for (uint32_t position = 0; position < 200; position++) {
            struct sampling sampling = samplings[i];
            sampling.seed = position * 77;
            assert_int_equal(sampler_check(&sampling, NULL), STATUS_OK);
            assert_int_equal(pick(sampling, position), 7);
        }
}

/* Shares of 1e4 draws against the exact probabilities. */
static void check_shares(struct sampling sampling, const bool *is_allowed) {
    enum { DRAWS = 10000 };
    int counts[N] = {0};
    double total = 0, chi_square = 0;
    int n_bins = 0;
    for (uint32_t i = 0; i < DRAWS; i++) counts[pick(sampling, i)]++;
    for (int i = 0; i < N; i++) total += is_allowed[i] ? exp((double)logits[i] / (double)sampling.temperature) : 0;
    for (int i = 0; i < N; i++) {
        if (!is_allowed[i]) {
            assert_int_equal(counts[i], 0);
            continue;
        }
        double expected = DRAWS * exp((double)logits[i] / (double)sampling.temperature) / total;
        chi_square += (counts[i] - expected) * (counts[i] - expected) / expected;
        n_bins++;
    }
    double freedom = n_bins - 1;
    if (!(chi_square < freedom + 5 * sqrt(2 * freedom) + 5))
        fail_msg("chi square %g of %g degrees of freedom", chi_square, freedom);
}

static void draws_follow_the_distribution(void **state) {
    (void)state;
    bool all[N];
    memset(all, true, sizeof all);
    check_shares((struct sampling){.temperature = 3, .top_p = 1, .seed = 11}, all);
    check_shares((struct sampling){.temperature = 8, .top_p = 1, .seed = 12, .choice = 3}, all);
}

/* Marks the n likeliest. */
static void mark_likeliest(bool *is_allowed, int n) {
    memset(is_allowed, false, N * sizeof *is_allowed);
    for (int k = 0; k < n; k++) {
        int best = -1;
        for (int i = 0; i < N; i++)
            if (!is_allowed[i] && (best < 0 || logits[i] > logits[best])) best = i;
        is_allowed[best] = true;
    }
}

static void filters_cut_where_they_say(void **state) {
    (void)state;
    bool is_allowed[N];
    mark_likeliest(is_allowed, 12);
    check_shares((struct sampling){.temperature = 4, .top_p = 1, .top_k = 12, .seed = 1}, is_allowed);
    double weights[N], total = 0, sum = 0;
    for (int i = 0; i < N; i++) total += weights[i] = exp((double)logits[i] / 4);
    int n = 0; /* as many of the likeliest as reach half of the whole */
    for (; sum < total / 2; n++) {
        mark_likeliest(is_allowed, n + 1);
        sum = 0;
        for (int i = 0; i < N; i++) sum += is_allowed[i] ? weights[i] : 0;
    }
    assert_in_range(n, 2, N - 2);
    check_shares((struct sampling){.temperature = 4, .top_p = 0.5f, .seed = 2}, is_allowed);
    for (int i = 0; i < N; i++) is_allowed[i] = weights[i] >= 0.3 * weights[7];
    check_shares((struct sampling){.temperature = 4, .top_p = 1, .min_p = 0.3f, .seed = 3}, is_allowed);
}

static void a_draw_is_a_function_of_seed_choice_and_position(void **state) {
    (void)state;
    struct sampling base = {.temperature = 8, .top_p = 1, .seed = 42}, seed = base, choice = base;
    int n_seed = 0, n_choice = 0, n_position = 0;
    seed.seed = 43;
    choice.choice = 1;
    for (uint32_t i = 0; i < 200; i++) {
        uint32_t token = pick(base, i);
        assert_int_equal(pick(base, i), token);
        n_seed += pick(seed, i) != token;
        n_choice += pick(choice, i) != token;
        n_position += pick(base, i + 1) != token;
    }
    assert_true(n_seed > 100 && n_choice > 100 && n_position > 100);
}

static void no_number_is_never_chosen(void **state) {
    (void)state;
    float saved[N];
    memcpy(saved, logits, sizeof saved);
    logits[0] = logits[20] = NAN;
    logits[3] = -INFINITY;
    for (uint32_t i = 0; i < 500; i++) {
        uint32_t token = pick((struct sampling){.temperature = 20, .top_p = 0.99f, .seed = i}, i);
        assert_true(token < N && token != 0 && token != 20 && token != 3);
    }
    assert_int_equal(pick((struct sampling){.top_p = 1}, 0), 7);
    for (int i = 0; i < N; i++) logits[i] = NAN;
    assert_in_range(pick((struct sampling){.temperature = 1, .top_p = 1}, 0), 0, N - 1);
    for (int i = 0; i < N; i++) logits[i] = -INFINITY;
    assert_in_range(pick((struct sampling){.temperature = 1, .top_p = 0.5f}, 0), 0, N - 1);
    memcpy(logits, saved, sizeof saved);
    logits[30] = INFINITY;
    assert_int_equal(pick((struct sampling){.temperature = 1, .top_p = 1}, 0), 30);
    memcpy(logits, saved, sizeof saved);
}

static void of_equals_the_lowest_id_wins(void **state) {
    (void)state;
    const float values[] = {1, 3, 3, 2, 3}, with_nan[] = {NAN, 2, NAN, 2};
    assert_int_equal(sampler_argmax(values, 5), 1);
    assert_int_equal(sampler_argmax(with_nan, 4), 1);
}

static void senseless_values_are_named(void **state) {
    (void)state;
    const struct {
        struct sampling sampling;
        const char *word;
    } bad[] = {{{.temperature = -0.1f, .top_p = 1}, "temperature"},
               {{.temperature = NAN, .top_p = 1}, "temperature"},
               {{.temperature = INFINITY, .top_p = 1}, "temperature"},
               {{.top_p = 0}, "top_p"},
               {{.top_p = 1.5f}, "top_p"},
               {{.top_p = -0.1f}, "top_p"},
               {{.top_p = NAN}, "top_p"},
               {{.top_p = 1, .top_k = -1}, "top_k"},
               {{.top_p = 1, .min_p = -1}, "min_p"},
               {{.top_p = 1, .min_p = 1.1f}, "min_p"},
               {{.top_p = 1, .min_p = NAN}, "min_p"}};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct status_note note = {0};
        assert_int_equal(sampler_check(&bad[i].sampling, &note), STATUS_INVALID);
        assert_non_null(strstr(note.text, bad[i].word));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(these_are_all_greedy),
        cmocka_unit_test(draws_follow_the_distribution),
        cmocka_unit_test(filters_cut_where_they_say),
        cmocka_unit_test(a_draw_is_a_function_of_seed_choice_and_position),
        cmocka_unit_test(no_number_is_never_chosen),
        cmocka_unit_test(of_equals_the_lowest_id_wins),
        cmocka_unit_test(senseless_values_are_named),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
