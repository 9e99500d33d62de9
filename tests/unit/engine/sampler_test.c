#include "engine/sampler.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/cpu.h"
#include "base/rng.h"
#include "engine/top_select.h"
#include "kernels/scalar/exp_scalar.h"
#include "support/test.h"

#define N_DRAWS 10000
#define MAX_VOCAB 1000

static const struct sampling plain = {.temperature = 1, .top_p = 1};

static void open_sampler(struct sampler *sampler, int n_vocab) {
    struct kernel_table kernels;
    kernel_table_choose(&kernels, cpu_detect());
    assert_int_equal(sampler_init(sampler, n_vocab, n_vocab, 1, &kernels), STATUS_OK);
}

/* Without anything that looks at the tokens themselves. */
static uint32_t pick_with(const struct sampler *sampler, const struct sampling *sampling, const float *logits,
                          uint32_t position) {
    return sampler_pick(sampler, 0,
                        &(struct sampler_ask){.sampling = sampling, .logits = logits, .n_tokens = (int)position});
}

static uint32_t pick(const struct sampling *sampling, const float *logits, int n_vocab, uint32_t position) {
    struct sampler sampler;
    open_sampler(&sampler, n_vocab);
    uint32_t token = pick_with(&sampler, sampling, logits, position);
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
    open_sampler(&sampler, N_VOCAB);
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
        n_seen[pick_with(&sampler, &sampling, logits_of_eight, draw)]++;
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
    open_sampler(&used, MAX_VOCAB);
    int n_equal_seed = 0, n_equal_choice = 0, n_equal_position = 0;
    for (uint32_t i = 0; i < 100; i++) {
        struct sampling a = {.temperature = 1, .top_p = 1, .seed = 42}, b = a, c = a;
        b.seed = 43;
        c.choice = 1;
        uint32_t token = pick(&a, logits, MAX_VOCAB, i);
        /* a sampler that has answered others gives the same */
        n_equal_seed += pick_with(&used, &b, logits, i) == token;
        n_equal_choice += pick_with(&used, &c, logits, i) == token;
        n_equal_position += pick_with(&used, &a, logits, i + 1000) == token;
        assert_int_equal(pick_with(&used, &a, logits, i), token);
    }
    assert_true(n_equal_seed < 5 && n_equal_choice < 5 && n_equal_position < 5);
    sampler_deinit(&used);
}

/* ---- against simple implementations ---- */

#define N_CASES 6000
#define MAX_TOKENS 64

static uint32_t n_randoms;

static int below(int n) {
    return (int)(rng_uniform(99, 7, n_randoms++) * n);
}

/* What is sorted: larger first, of equals the lower id. */
static const float *sorted_values;

static int compare_ids(const void *a, const void *b) {
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    if (sorted_values[x] != sorted_values[y]) return sorted_values[x] > sorted_values[y] ? -1 : 1;
    return x < y ? -1 : 1;
}

static void sort_ids(const float *values, uint32_t *ids, int n) {
    sorted_values = values;
    qsort(ids, (size_t)n, sizeof *ids, compare_ids);
}

/* Logits with ties, a few that are no numbers, in one of several shapes. */
static void random_logits(float *logits, int n, bool has_nan) {
    int shape = below(4);
    float scale = (float)(1 + below(30));
    for (int i = 0; i < n; i++) {
        float u = (float)rng_uniform(99, 7, n_randoms++);
        logits[i] = scale * (shape == 0 ? u : shape == 1 ? u * u * u : shape == 2 ? (float)(int)(u * 8) : u - 0.5f);
        if (has_nan && below(40) == 0) logits[i] = below(2) ? NAN : -INFINITY;
    }
}

static void the_largest_are_selected(void **state) {
    (void)state;
    static float values[3000];
    static uint32_t expected[3000], got[3000];
    for (int round = 0; round < 400; round++) {
        int n = 1 + below(round < 200 ? 70 : 3000), k = 1 + below(round % 3 ? 20 : n), n_numbers = 0;
        random_logits(values, n, round % 2);
        for (int i = 0; i < n; i++)
            if (!isnan(values[i])) expected[n_numbers++] = (uint32_t)i;
        sort_ids(values, expected, n_numbers);
        int n_expected = n_numbers < k ? n_numbers : k;
        assert_int_equal(top_select(values, n, k, got), n_expected);
        assert_memory_equal(got, expected, (size_t)n_expected * sizeof *got);
        if (n_numbers) assert_int_equal(top_select_max(values, n), expected[0]);
    }
}

/* The documented order of filters with plain loops and full sorts. */
static void simple_edit(const struct sampler_ask *ask, int n_vocab, float *logits) {
    const struct sampling *sampling = ask->sampling;
    for (int id = 0; id < n_vocab; id++) {
        int n_all = 0, n_new = 0;
        logits[id] = ask->logits[id];
        if (ask->mask && !(ask->mask[id / 32] >> (id % 32) & 1)) logits[id] = -INFINITY;
        for (int i = 0; i < ask->n_banned; i++)
            if (ask->banned[i] == (uint32_t)id) logits[id] = -INFINITY;
        for (int i = 0; i < sampling->n_biases; i++)
            if (sampling->biases[i].id == (uint32_t)id) logits[id] += sampling->biases[i].bias;
        for (int i = 0; i < ask->n_tokens; i++) {
            n_all += ask->tokens[i] == (uint32_t)id;
            n_new += ask->tokens[i] == (uint32_t)id && i >= ask->n_prompt;
        }
        if (n_all && sampling->repetition_penalty != 0)
            logits[id] =
                logits[id] > 0 ? logits[id] / sampling->repetition_penalty : logits[id] * sampling->repetition_penalty;
        if (n_new) logits[id] -= sampling->frequency_penalty * (float)n_new;
        if (n_new) logits[id] -= sampling->presence_penalty;
    }
}

static uint32_t simple_pick(const struct sampler_ask *ask, int n_vocab) {
    static float logits[MAX_VOCAB], weights[MAX_VOCAB];
    static uint32_t by_logit[MAX_VOCAB], ids[MAX_VOCAB];
    const struct sampling *sampling = ask->sampling;
    int n = 0, n_sorted = 0;
    simple_edit(ask, n_vocab, logits);
    for (int id = 0; id < n_vocab; id++)
        if (!isnan(logits[id])) by_logit[n_sorted++] = (uint32_t)id;
    sort_ids(logits, by_logit, n_sorted);
    if (logits[by_logit[0]] == -INFINITY) return SAMPLER_NONE;
    if (sampling->temperature == 0) return by_logit[0];
    for (int i = 0; i < n_sorted; i++) {
        uint32_t id = by_logit[i];
        weights[id] = exp_scalar((logits[id] - logits[by_logit[0]]) / sampling->temperature);
        bool is_in = weights[id] > 0 && weights[id] >= sampling->min_p;
        if (is_in && (!sampling->top_k || i < sampling->top_k)) ids[n++] = id;
    }
    double total = 0, kept = 0;
    for (int i = 0; i < n; i++) total += (double)weights[ids[i]];
    if (sampling->top_p < 1) {
        int n_kept = 0;
        if (!sampling->top_k) sort_ids(weights, ids, n);
        while (n_kept < n && (n_kept == 0 || kept < (double)sampling->top_p * total))
            kept += (double)weights[ids[n_kept++]];
        n = n_kept;
    }
    if (!sampling->top_k) { /* in order of ids */
        for (int i = 0; i < n_vocab; i++) logits[i] = -(float)i;
        sort_ids(logits, ids, n);
    }
    for (int i = total = 0; i < n; i++) total += (double)weights[ids[i]];
    double at = rng_uniform(sampling->seed, sampling->choice + ask->choice, (uint32_t)ask->n_tokens) * total;
    for (int i = 0; i < n - 1; i++)
        if ((at -= (double)weights[ids[i]]) < 0) return ids[i];
    return ids[n - 1];
}

struct random_case {
    struct sampling sampling;
    struct sampler_ask ask;
    float logits[MAX_VOCAB];
    uint32_t tokens[MAX_TOKENS], banned[4], mask[SAMPLER_MASK_WORDS(MAX_VOCAB)];
    struct logit_bias biases[5];
};

static float one_of(int n, const float *values) {
    return values[below(n)];
}

static void make_case(struct random_case *c, int n_vocab) {
    random_logits(c->logits, n_vocab, below(4) == 0);
    c->sampling = (struct sampling){.temperature = one_of(4, (const float[]){0, 0.5f, 1, 3}),
                                    .top_k = below(3) ? 0 : 2 + below(below(2) ? 10 : n_vocab),
                                    .top_p = below(2) ? 1 : one_of(4, (const float[]){0.1f, 0.5f, 0.9f, 0.999f}),
                                    .min_p = below(3) ? 0 : one_of(3, (const float[]){0.001f, 0.05f, 0.4f}),
                                    .seed = (uint64_t)below(1000),
                                    .choice = (uint32_t)below(3)};
    if (c->sampling.top_k >= n_vocab) c->sampling.top_k = 0; /* all of them: in order of ids */
    c->ask = (struct sampler_ask){.sampling = &c->sampling,
                                  .logits = c->logits,
                                  .tokens = c->tokens,
                                  .n_tokens = below(MAX_TOKENS),
                                  .choice = (uint32_t)below(3)};
    c->ask.n_prompt = below(c->ask.n_tokens + 1);
    for (int i = 0; i < MAX_TOKENS; i++) c->tokens[i] = (uint32_t)below(n_vocab < 12 ? n_vocab : 12);
    if (below(2)) {
        c->sampling.repetition_penalty = one_of(4, (const float[]){0, 1, 1.3f, 0.5f});
        c->sampling.frequency_penalty = one_of(3, (const float[]){0, 0.5f, -2});
        c->sampling.presence_penalty = one_of(3, (const float[]){0, 2, -0.5f});
    }
    for (int i = below(5); i > 0; i--) c->ask.n_banned = i, c->banned[i - 1] = (uint32_t)below(n_vocab);
    c->ask.banned = c->banned;
    for (int i = below(3) ? 0 : 5; i > 0; i--) {
        c->biases[c->sampling.n_biases++] = (struct logit_bias){(uint32_t)below(n_vocab), (float)(below(200) - 100)};
        c->sampling.biases = c->biases;
    }
    if (below(3)) return;
    c->ask.mask = c->mask;
    int odds = below(4);
    for (size_t i = 0; i < SAMPLER_MASK_WORDS(n_vocab); i++)
        for (int bit = 0; bit < 32; bit++)
            c->mask[i] = (c->mask[i] & ~(1u << bit)) | (uint32_t)(below(4) < odds) << bit;
}

static void picks_equal_the_simple_ones(void **state) {
    (void)state;
    static const int n_vocabs[] = {1, 2, 7, 32, 33, 100, 513, MAX_VOCAB};
    static struct random_case c;
    int n_none = 0;
    for (size_t v = 0; v < sizeof n_vocabs / sizeof n_vocabs[0]; v++) {
        struct sampler sampler;
        open_sampler(&sampler, n_vocabs[v]);
        for (int i = 0; i < N_CASES / 8; i++) {
            make_case(&c, n_vocabs[v]);
            bool is_any = false;
            for (int id = 0; id < n_vocabs[v]; id++) is_any |= !isnan(c.logits[id]) && c.logits[id] > -INFINITY;
            if (!is_any) continue;
            uint32_t expected = simple_pick(&c.ask, n_vocabs[v]), got = sampler_pick(&sampler, 0, &c.ask);
            n_none += got == SAMPLER_NONE;
            if (expected != got)
                fail_msg("vocabulary %d, case %d (temperature %g, top_k %d, top_p %g, min_p %g): %u, expected %u",
                         n_vocabs[v], i, (double)c.sampling.temperature, c.sampling.top_k, (double)c.sampling.top_p,
                         (double)c.sampling.min_p, got, expected);
        }
        sampler_deinit(&sampler);
    }
    assert_true(n_none > 50);
}

static void tiers_pick_the_same(void **state) {
    (void)state;
    static struct random_case c;
    struct kernel_table scalar;
    struct sampler fast, slow;
    kernel_table_choose(&scalar, 0);
    open_sampler(&fast, MAX_VOCAB);
    assert_int_equal(sampler_init(&slow, MAX_VOCAB, MAX_VOCAB, 1, &scalar), STATUS_OK);
    for (int i = 0; i < 1000; i++) {
        struct token_logprob a[6], b[6];
        make_case(&c, MAX_VOCAB);
        assert_int_equal(sampler_pick(&fast, 0, &c.ask), sampler_pick(&slow, 0, &c.ask));
        sampler_logprobs(&fast, 0, c.logits, 3, 5, a);
        sampler_logprobs(&slow, 0, c.logits, 3, 5, b);
        assert_memory_equal(a, b, sizeof a);
    }
    sampler_deinit(&fast);
    sampler_deinit(&slow);
}

static const struct sampling samplings[] = {{.top_p = 1},
                                            {.temperature = 1, .top_p = 1},
                                            {.temperature = 1, .top_p = 0.5f},
                                            {.temperature = 1, .top_p = 1, .top_k = 2}};

static void what_nothing_allows_is_not_picked(void **state) {
    (void)state;
    const float logits[] = {1, 2, 3};
    const uint32_t none = 0, two = 1 << 2, banned[] = {2};
    struct sampler sampler;
    open_sampler(&sampler, 3);
    for (int i = 0; i < 4; i++) {
        struct sampler_ask ask = {.sampling = &samplings[i], .logits = logits, .mask = &none};
        assert_int_equal(sampler_pick(&sampler, 0, &ask), SAMPLER_NONE);
        ask.mask = &two;
        assert_int_equal(sampler_pick(&sampler, 0, &ask), 2);
        ask.banned = banned;
        ask.n_banned = 1;
        assert_int_equal(sampler_pick(&sampler, 0, &ask), SAMPLER_NONE);
    }
    sampler_deinit(&sampler);
}

/* The embedding's rows may be more than the tokens; a request may name all of them. */
static void padding_is_not_picked(void **state) {
    (void)state;
    const float logits[] = {1, 2, 0, 9, 8};
    const uint32_t tokens[] = {4, 3};
    const struct logit_bias bias = {4, 50};
    struct kernel_table kernels;
    struct sampler padded, bare;
    struct token_logprob a[3], b[3];
    kernel_table_choose(&kernels, cpu_detect());
    assert_int_equal(sampler_init(&padded, 3, 5, 1, &kernels), STATUS_OK);
    open_sampler(&bare, 3);
    for (int i = 0; i < 400; i++) {
        struct sampling biased = samplings[i % 4];
        struct sampler_ask ask = {.sampling = &biased, .logits = logits, .tokens = tokens, .n_tokens = 2};
        ask.choice = (uint32_t)i;
        assert_int_equal(sampler_pick(&padded, 0, &ask), sampler_pick(&bare, 0, &ask));
        biased.biases = &bias;
        biased.n_biases = 1;
        biased.repetition_penalty = 2;
        assert_true(sampler_pick(&padded, 0, &ask) < 3);
    }
    sampler_logprobs(&padded, 0, logits, 1, 2, a);
    sampler_logprobs(&bare, 0, logits, 1, 2, b);
    assert_memory_equal(a, b, sizeof a);
    sampler_deinit(&padded);
    sampler_deinit(&bare);
}

/* The prompt counts for repetition only, an id's count for frequency. */
static void penalties_as_published(void **state) {
    (void)state;
    const float logits[] = {2.0f, 1.9f, -1.0f, 0};
    const uint32_t tokens[] = {0, 2, 1, 1};
    static const struct {
        struct sampling sampling;
        uint32_t best;
    } cases[] = {{{.top_p = 1}, 0},
                 {{.top_p = 1, .presence_penalty = -0.2f}, 1},
                 {{.top_p = 1, .frequency_penalty = -0.06f}, 1},
                 {{.top_p = 1, .frequency_penalty = -0.04f}, 0},
                 {{.top_p = 1, .repetition_penalty = 10}, 0},     /* .2 .19 -10 0 */
                 {{.top_p = 1, .repetition_penalty = 0.001f}, 0}, /* 2000 1900 -.001 0 */
                 {{.top_p = 1, .repetition_penalty = 10, .presence_penalty = -0.02f}, 1}};
    struct sampler sampler;
    open_sampler(&sampler, 4);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct sampler_ask ask = {
            .sampling = &cases[i].sampling, .logits = logits, .tokens = tokens, .n_prompt = 2, .n_tokens = 4};
        assert_int_equal(sampler_pick(&sampler, 0, &ask), cases[i].best);
    }
    sampler_deinit(&sampler);
}

static void logprobs_are_those_of_the_raw_logits(void **state) {
    (void)state;
    static float logits[MAX_VOCAB];
    static uint32_t ids[MAX_VOCAB];
    struct token_logprob out[1 + SAMPLER_MAX_TOP_LOGPROBS];
    struct sampler sampler;
    open_sampler(&sampler, MAX_VOCAB);
    for (int round = 0; round < 200; round++) {
        double total = 0;
        int n_top = below(SAMPLER_MAX_TOP_LOGPROBS + 1);
        uint32_t chosen = (uint32_t)below(MAX_VOCAB);
        random_logits(logits, MAX_VOCAB, false);
        for (int i = 0; i < MAX_VOCAB; i++) ids[i] = (uint32_t)i, total += exp((double)logits[i]);
        sort_ids(logits, ids, MAX_VOCAB);
        sampler_logprobs(&sampler, 0, logits, chosen, n_top, out);
        assert_int_equal(out[0].id, chosen);
        for (int i = 0; i <= n_top; i++) {
            if (i > 0) assert_int_equal(out[i].id, ids[i - 1]);
            double expected = (double)logits[out[i].id] - log(total);
            if (!(fabs((double)out[i].logprob - expected) < 1e-6 * (1 + fabs(expected))))
                fail_msg("log-probability %g, expected %g", (double)out[i].logprob, expected);
        }
    }
    float few[] = {0, NAN, 0};
    sampler_deinit(&sampler);
    open_sampler(&sampler, 3);
    sampler_logprobs(&sampler, 0, few, 1, 3, out);
    assert_true(isinf(out[0].logprob) && out[3].id == SAMPLER_NONE);
    assert_true(fabsf(out[1].logprob + 0.6931472f) < 1e-6f && out[1].id == 0 && out[2].id == 2);
    sampler_deinit(&sampler);
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
    static const struct logit_bias bad_bias[] = {{3, 100}, {4, 101}, {5, NAN}};
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
        {{.top_p = 1, .presence_penalty = 2.5f}, "presence_penalty 2.5"},
        {{.top_p = 1, .frequency_penalty = -3}, "frequency_penalty -3"},
        {{.top_p = 1, .frequency_penalty = NAN}, "frequency_penalty"},
        {{.top_p = 1, .repetition_penalty = -1}, "repetition_penalty -1"},
        {{.top_p = 1, .n_biases = 2, .biases = bad_bias}, "logit_bias 101 of id 4"},
        {{.top_p = 1, .n_biases = 1, .biases = &bad_bias[2]}, "logit_bias"},
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

static void biases_are_checked(void **state) {
    (void)state;
    struct status_note note = {0};
    struct sampling sampling = {.top_p = 1, .n_biases = SAMPLER_MAX_BIASES + 1};
    assert_int_equal(sampler_check(&sampling, &note), STATUS_LIMIT);
    assert_non_null(strstr(note.text, "1025"));
    static const struct logit_bias biases[] = {{MAX_VOCAB - 1, 1}, {MAX_VOCAB, 1}};
    sampling = (struct sampling){.n_biases = 1, .biases = biases};
    assert_int_equal(sampler_check_ids(&sampling, MAX_VOCAB, &note), STATUS_OK);
    sampling.n_biases = 2;
    assert_int_equal(sampler_check_ids(&sampling, MAX_VOCAB, &note), STATUS_INVALID);
    assert_non_null(strstr(note.text, "id 1000"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_nearly_greedy_is_greedy),
        cmocka_unit_test(of_equals_the_lowest_id_is_the_greedy_one),
        cmocka_unit_test(picks_follow_the_softmax),
        cmocka_unit_test(filters_cut_and_renormalise),
        cmocka_unit_test(seed_choice_and_position_decide_and_nothing_else),
        cmocka_unit_test(the_largest_are_selected),
        cmocka_unit_test(picks_equal_the_simple_ones),
        cmocka_unit_test(tiers_pick_the_same),
        cmocka_unit_test(what_nothing_allows_is_not_picked),
        cmocka_unit_test(padding_is_not_picked),
        cmocka_unit_test(penalties_as_published),
        cmocka_unit_test(logprobs_are_those_of_the_raw_logits),
        cmocka_unit_test(nan_is_never_picked),
        cmocka_unit_test(infinities_do_no_harm),
        cmocka_unit_test(bad_parameters_are_named),
        cmocka_unit_test(biases_are_checked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
