/* Whole-vocabulary logits of every position, bit for bit, whatever chunk, block size, threads, batch mates, order and
 * kernels computed them, and whichever rows' logits were wanted: exactness rules 1, 2 and 9 at the level of forward.
 *
 * Each model runs with every KV type and, where its weights are quantized, every activation form, but with every pair
 * of them under KVICK_LONG only: a form changes products of weights, a KV type attention, and only float activations go
 * from one to the other. The weight types take turns, so that each pair runs with a third of them. For each of these
 * come 6 ways of chunk, block size and threads with every value of each (real models: 2 for each KV type, 6 in all).
 * KVICK_LONG: each way alone, with mates and reversed, and for the pairs whose turn it is all 72 combinations, each in
 * one company (real models: 12 in each, for more than two threads and other block sizes change nothing there that small
 * models do not show).
 * Other EXACT options are the engine's and are nothing that forward sees. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cpu.h"
#include "base/mem.h"
#include "model/forward.h"
#include "support/exact_options.h"
#include "support/model_file.h"
#include "support/model_run.h"
#include "support/test.h"
#include "weights/gguf.h"

#define N_SEQUENCES 4
#define MAX_ROWS 512
#define N_REAL_SAMPLES 2  /* for each KV type, so that all together have every value, */
#define N_SLOW_SAMPLES 2  /* combinations in a sanitizer's build, */
#define SLOW_POSITIONS 90 /* of so many positions, with one KV type and activation form for each model */
#define REAL_THREADS 2    /* products on real models stop there */
#define N_SHARES 2        /* of the rows: a trial may want the logits of one, real models' trials always do */

/* The prompt and three mates of other lengths. The first mate is decoding: it brings one row a step. */
static const int lengths[N_SEQUENCES] = {300, 9, 130, 61};

enum company { ALONE, MATES, REVERSED, N_COMPANIES };
static const char *const company_names[] = {"alone", "with 3 mates", "with 3 mates in reversed order"};
static const char *const form_names[] = {"auto", "int8", "int16", "f32"};

struct model_case {
    const char *test_name;
    const char *golden; /* file in golden/gguf */
    const char *real;   /* name of a downloaded model */
    enum dtype dtype;   /* of a made file if neither is given */
};

#define MADE(type)                                                                                                     \
    { "made_" #type, NULL, NULL, DTYPE_##type }
static const struct model_case cases[] = {MADE(F32),
                                          MADE(F16),
                                          MADE(BF16),
                                          MADE(Q4_0),
                                          MADE(Q4_1),
                                          MADE(Q5_0),
                                          MADE(Q5_1),
                                          MADE(Q8_0),
                                          MADE(Q4_K),
                                          MADE(Q5_K),
                                          MADE(Q6_K),
                                          MADE(Q2_K),
                                          MADE(IQ4_XS),
                                          MADE(IQ2_S),
                                          {"golden_llama", "gguf/llama.gguf", NULL, 0},
                                          {"golden_llama_tied_mqa", "gguf/llama-tied-mqa.gguf", NULL, 0},
                                          {"golden_llama3_rope", "gguf/llama3-rope.gguf", NULL, 0},
                                          {"golden_llama_yarn", "gguf/llama-yarn.gguf", NULL, 0},
                                          {"golden_gemma3", "gguf/gemma3.gguf", NULL, 0},
                                          {"golden_qwen2", "gguf/qwen2.gguf", NULL, 0},
                                          {"golden_qwen3", "gguf/qwen3.gguf", NULL, 0},
                                          {"real_smollm2", NULL, "smollm2", 0},
                                          {"real_gemma3", NULL, "gemma3-270m", 0}};

static const enum dtype kv_dtypes[] = {DTYPE_F32, DTYPE_F16, DTYPE_I8, DTYPE_Q8_0};
#define N_KV_DTYPES ((int)(sizeof kv_dtypes / sizeof kv_dtypes[0]))

#define N_CASES ((int)(sizeof cases / sizeof cases[0]))

/* What may change bits, and everything else that is the same for one comparison. */
struct subject {
    char path[1024];
    uint64_t seed;
    int kv_idx;
    enum dtype kv_dtype;
    enum activation_form form;
    uint32_t *tokens[N_SEQUENCES];
    float *base[N_SEQUENCES]; /* [length][n_vocab] */
    float *scratch;           /* [MAX_ROWS][n_vocab] */
    int n_vocab;
    int max_positions; /* of each sequence that are run and compared */
    long long n_attention_rows, n_attention_keys;
};

struct trial {
    unsigned tiers;
    const char *tier_name;
    struct exact_options exact;
    enum company company;
    int share; /* 0: logits of all rows are wanted, else of this share of them */
};

static void open_run(struct model_run *run, const struct subject *subject, unsigned tiers,
                     const struct exact_options *exact) {
    int max_slots = 0;
    for (int s = 0; s < N_SEQUENCES; s++)
        if (lengths[s] > max_slots) max_slots = lengths[s];
    max_slots = (max_slots + 63) / 64 * 64 * N_SEQUENCES;
    struct model_run_options options = {.kv_dtype = subject->kv_dtype,
                                        .n_threads = exact->threads,
                                        .block_tokens = exact->block_tokens,
                                        .max_tokens = max_slots,
                                        .max_rows = MAX_ROWS,
                                        .max_logit_rows = MAX_ROWS,
                                        .tiers = tiers,
                                        .activations = subject->form};
    model_run_open(run, subject->path, &options);
}

static void close_run(struct model_run *run, struct subject *subject) {
    struct layer_ops_counts counts = forward_counts(run->forward);
    subject->n_attention_rows += counts.attention_rows;
    subject->n_attention_keys += counts.attention_keys;
    model_run_close(run);
}

static void make_base(struct subject *subject) {
    struct exact_options plain = {.threads = 1, .block_tokens = 16};
    struct model_run run;
    open_run(&run, subject, cpu_detect(), &plain);
    subject->n_vocab = run.n_vocab;
    subject->scratch = mem_alloc_array((size_t)MAX_ROWS * (size_t)run.n_vocab, sizeof(float));
    assert_non_null(subject->scratch);
    for (int s = 0; s < N_SEQUENCES; s++) {
        subject->tokens[s] = mem_alloc_array((size_t)lengths[s], sizeof(uint32_t));
        subject->base[s] = mem_alloc_array((size_t)lengths[s] * (size_t)run.n_vocab, sizeof(float));
        assert_non_null(subject->tokens[s]);
        assert_non_null(subject->base[s]);
        model_file_random_ids(subject->seed + (uint64_t)s, run.n_vocab, subject->tokens[s], lengths[s]);
        model_run_logits(&run, subject->tokens[s], lengths[s], 0, subject->base[s]);
    }
    close_run(&run, subject);
    /* A model whose logits are all equal or not numbers would prove nothing. */
    const float *last = subject->base[0] + (size_t)(lengths[0] - 1) * (size_t)subject->n_vocab;
    int n_differing = 0;
    for (int i = 1; i < subject->n_vocab; i++) n_differing += last[i] != last[0] && last[i] - last[i] == 0;
    assert_true(n_differing > subject->n_vocab / 2);
}

static void free_base(struct subject *subject) {
    for (int s = 0; s < N_SEQUENCES; s++) {
        mem_free(subject->tokens[s]);
        mem_free(subject->base[s]);
    }
    mem_free(subject->scratch);
}

static void compare(const struct subject *subject, const struct trial *trial, int sequence, int pos,
                    const float *logits) {
    size_t n_vocab = (size_t)subject->n_vocab, i = 0;
    const float *base = subject->base[sequence] + (size_t)pos * n_vocab;
    if (memcmp(base, logits, n_vocab * sizeof(float)) == 0) return;
    while (memcmp(&base[i], &logits[i], sizeof(float)) == 0) i++;
    fail_msg("%s: sequence %d, position %d, vocabulary %d: %a, base %a (KV %s, activations %s; tier %s, chunk %d, "
             "block %d, threads %d, %s, share %d of rows)",
             subject->path, sequence, pos, (int)i, (double)logits[i], (double)base[i], dtype_name(subject->kv_dtype),
             form_names[subject->form], trial->tier_name, trial->exact.chunk, trial->exact.block_tokens,
             trial->exact.threads, company_names[trial->company], trial->share);
}

static int piece_rows(int sequence, int chunk) {
    switch (sequence) {
    case 1: return 1;
    case 3: return 2 * chunk + 1;
    default: return chunk;
    }
}

static int n_positions(const struct subject *subject, int sequence) {
    return lengths[sequence] < subject->max_positions ? lengths[sequence] : subject->max_positions;
}

/* Of a share: three rows of a sequence are wanted, three are not. So steps have gaps, and pieces of which nothing is
 * kept. */
static bool is_wanted(const struct trial *trial, int sequence, int pos) {
    return !trial->share || (pos / 3 + sequence) % N_SHARES == trial->share - 1;
}

static void run_step(struct model_run *run, const struct subject *subject, const struct trial *trial,
                     const struct model_run_piece *pieces, const int *owners, int n_pieces) {
    int32_t wanted[MAX_ROWS];
    int n_wanted = 0, row = 0;
    for (int i = 0; i < n_pieces; i++)
        for (int pos = pieces[i].from; pos < pieces[i].to; pos++, row++)
            if (is_wanted(trial, owners[i], pos)) wanted[n_wanted++] = row;
    model_run_step_at(run, pieces, n_pieces, wanted, n_wanted, subject->scratch);
    const float *logits = subject->scratch;
    for (int i = 0; i < n_pieces; i++)
        for (int pos = pieces[i].from; pos < pieces[i].to; pos++)
            if (is_wanted(trial, owners[i], pos)) {
                compare(subject, trial, owners[i], pos, logits);
                logits += subject->n_vocab;
            }
}

/* All sequences step by step until the last has ended; alone: only the first. */
static void run_trial(struct model_run *run, const struct subject *subject, const struct trial *trial) {
    struct model_run_sequence sequences[N_SEQUENCES];
    int done[N_SEQUENCES] = {0}, n_sequences = trial->company == ALONE ? 1 : N_SEQUENCES;
    for (int s = 0; s < N_SEQUENCES; s++)
        sequences[s] = (struct model_run_sequence){subject->tokens[s], lengths[s], (uint32_t)s, N_SEQUENCES};
    int chunk = trial->exact.chunk ? trial->exact.chunk : lengths[0];
    for (;;) {
        struct model_run_piece pieces[N_SEQUENCES];
        int owners[N_SEQUENCES], n_pieces = 0;
        for (int i = 0; i < n_sequences; i++) {
            int s = trial->company == REVERSED ? n_sequences - 1 - i : i;
            int n = piece_rows(s, chunk), n_left = n_positions(subject, s) - done[s];
            if (n_left == 0) continue;
            owners[n_pieces] = s;
            pieces[n_pieces++] = (struct model_run_piece){&sequences[s], done[s], done[s] + (n < n_left ? n : n_left)};
            done[s] = pieces[n_pieces - 1].to;
        }
        if (n_pieces == 0) return;
        run_step(run, subject, trial, pieces, owners, n_pieces);
    }
}

struct samples {
    int first, n;        /* of exact_options_sample */
    bool is_all_company; /* every sample alone, with mates and reversed; else one of them in turn */
    bool is_product;     /* instead: every combination of what forward knows */
    bool is_real;        /* those that cost no hours, with logits of a share of the rows each time */
};

/* Of all combinations of EXACT options those that differ for forward: the others are the engine's. */
static bool belongs_to_product(const struct exact_options *exact, bool is_real) {
    bool is_known = exact->has_prefix_cache && !exact->is_fcfs && !exact->target_itl_ms && !exact->max_step_ms &&
                    !exact->decode_threads && !exact->is_unpinned;
    return is_known && (!is_real || (exact->threads <= REAL_THREADS && exact->block_tokens == 16));
}

static void try_tier(struct subject *subject, unsigned tiers, const char *tier_name, struct samples samples) {
    int first_share = samples.is_real, n_shares = N_SHARES + 1 - first_share,
        share = subject->kv_idx + (int)subject->form;
    int n = samples.is_product ? exact_options_n_combinations() : samples.n;
    for (int i = 0; i < n; i++) {
        struct trial trial = {.tiers = tiers, .tier_name = tier_name};
        int idx = samples.first + i, turn = idx + (int)subject->form + subject->kv_idx;
        trial.exact = samples.is_product ? exact_options_combination(i) : exact_options_sample(subject->seed, idx);
        if (samples.is_product && !belongs_to_product(&trial.exact, samples.is_real)) continue;
        struct model_run run;
        open_run(&run, subject, tiers, &trial.exact);
        for (int company = 0; company < N_COMPANIES; company++) {
            if (!samples.is_all_company && company != turn % N_COMPANIES) continue;
            trial.company = (enum company)company;
            trial.share = first_share + share++ % n_shares;
            run_trial(&run, subject, &trial);
        }
        close_run(&run, subject);
    }
}

/* The best tier gets every value of every option (KVICK_LONG, in turn: every combination that forward knows), the slow
 * ones a share of it each time, on fewer positions. */
static void try_all_tiers(struct subject *subject, bool is_small, bool is_in_turn) {
    bool is_long = getenv("KVICK_LONG") != NULL;
    unsigned all = cpu_detect();
    int best = 0, first = subject->kv_idx * exact_options_n_values() / N_KV_DTYPES;
    int n_values = test_is_slow_build() ? N_SLOW_SAMPLES : exact_options_n_values();
    for (int i = 0; i < cpu_n_tiers(); i++)
        if (all >> i & 1) best = i;
    for (int i = 0; i < cpu_n_tiers(); i++) {
        unsigned tiers;
        struct samples samples = {.first = first + i + (int)subject->form, .n = 1};
        bool is_too_slow = i == 0 && i != best && !is_small; /* a real model in plain C */
        if (!(all >> i & 1) || is_too_slow) continue;
        assert_int_equal(cpu_mask(all, cpu_tier_name(i), &tiers, NULL), STATUS_OK);
        if (i == best)
            samples = (struct samples){
                .n = n_values, .is_all_company = is_long && !is_in_turn, .is_product = is_long && is_in_turn};
        else if (is_small && is_long)
            samples.n = n_values;
        /* Small models see every value with each KV type; a real one, a hundred times as costly, with one of them. */
        if (i == best && !is_small) samples = (struct samples){first, N_REAL_SAMPLES, is_long, is_long, true};
        subject->max_positions = i == best || (is_small && is_long) ? lengths[0] : SLOW_POSITIONS;
        if (test_is_slow_build()) subject->max_positions = SLOW_POSITIONS;
        try_tier(subject, tiers, cpu_tier_name(i), samples);
    }
}

static void find_file(const struct model_case *model, struct subject *subject) {
    if (model->golden)
        snprintf(subject->path, sizeof subject->path, "%s", test_golden_file(model->golden));
    else if (model->real)
        snprintf(subject->path, sizeof subject->path, "%s", test_model_file(model->real));
    else
        model_file_make(model->dtype, subject->seed, subject->path);
}

static int head_dim_of(const struct subject *subject) {
    struct gguf *gguf;
    struct model_config config;
    struct status_note note = {0};
    if (gguf_open(&gguf, subject->path, &note) || forward_read_config(&config, gguf, &note)) fail_msg("%s", note.text);
    gguf_close(&gguf);
    return config.head_dim;
}

/* Types of weights with forms take turns, so that together they have every KV type with every form;
 * in a sanitizer's build each has one pair, and other models one KV type. */
static bool is_turn_of(const struct model_case *model, int kv, int form, bool has_forms) {
    int idx = (int)(model - cases), n_forms = ACTIVATIONS_INT16 - ACTIVATIONS_AUTO + 1;
    if (!has_forms) return !test_is_slow_build() || kv == idx % N_KV_DTYPES;
    form -= ACTIVATIONS_AUTO;
    return kv == (idx + form) % N_KV_DTYPES && (!test_is_slow_build() || form == idx / N_KV_DTYPES % n_forms);
}

static void bits_do_not_depend_on_the_way(void **state) {
    const struct model_case *model = *state;
    bool is_made = !model->golden && !model->real;
    bool has_forms = is_made && dtype_block_elements(model->dtype) > 1;
    struct subject subject = {.seed = 1000 + (uint64_t)(model - cases)};
    if (model->real) test_skip_if_slow();
    find_file(model, &subject);
    for (int kv = 0; kv < N_KV_DTYPES; kv++) {
        for (int form = ACTIVATIONS_AUTO; form <= (has_forms ? ACTIVATIONS_INT16 : ACTIVATIONS_AUTO); form++) {
            bool is_in_turn = is_turn_of(model, kv, form, has_forms);
            if (!is_in_turn && (!getenv("KVICK_LONG") || test_is_slow_build())) continue;
            if (head_dim_of(&subject) % dtype_block_elements(kv_dtypes[kv])) continue; /* is refused */
            subject.kv_idx = kv;
            subject.kv_dtype = kv_dtypes[kv];
            subject.form = (enum activation_form)form;
            make_base(&subject);
            try_all_tiers(&subject, !model->real, is_in_turn);
            free_base(&subject);
        }
    }
    if (is_made) unlink(subject.path);
    assert_true(subject.n_attention_rows > 0);
    assert_true(subject.n_attention_keys > 0);
    if (test_is_slow_build())
        print_message("a sanitizer's build: one KV type and form, %d positions\n", SLOW_POSITIONS);
}

/* Longer than two partitions, so that merging takes part. */
static void partitions_merge_alike(void **state) {
    (void)state;
    enum { N = 1100, N_CHUNKS = 5, N_TYPES = 3 };
    static const enum dtype types[N_TYPES] = {DTYPE_F16, DTYPE_I8, DTYPE_Q8_0};
    char path[MODEL_FILE_MAX_PATH];
    uint32_t tokens[N];
    struct model_run_options options = {
        .block_tokens = 16, .max_tokens = N, .max_rows = N, .max_logit_rows = N, .tiers = cpu_detect()};
    static const int chunks[N_CHUNKS] = {0, 1, 33, 512, 513};
    float *logits[2] = {mem_alloc_array((size_t)N * MODEL_FILE_N_VOCAB, sizeof(float)),
                        mem_alloc_array((size_t)N * MODEL_FILE_N_VOCAB, sizeof(float))};
    model_file_make(DTYPE_Q8_0, 77, path);
    model_file_random_ids(78, MODEL_FILE_N_VOCAB, tokens, N);
    for (int i = 0; i < N_TYPES * N_CHUNKS; i++) {
        struct model_run run;
        options.kv_dtype = types[i / N_CHUNKS];
        options.n_threads = 1 + i % 3;
        model_run_open(&run, path, &options);
        bool is_base = i % N_CHUNKS == 0;
        model_run_logits(&run, tokens, N, chunks[i % N_CHUNKS], logits[!is_base]);
        model_run_close(&run);
        if (!is_base) assert_memory_equal(logits[0], logits[1], (size_t)N * MODEL_FILE_N_VOCAB * sizeof(float));
    }
    unlink(path);
    mem_free(logits[0]);
    mem_free(logits[1]);
}

static void every_exact_option_is_toggled(void **state) {
    (void)state;
    exact_options_check();
}

/* An argument chooses tests by name. */
int main(int argc, char **argv) {
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    struct CMUnitTest tests[N_CASES + 2] = {cmocka_unit_test(every_exact_option_is_toggled),
                                            cmocka_unit_test(partitions_merge_alike)};
    for (int i = 0; i < N_CASES; i++)
        tests[i + 2] = (struct CMUnitTest){cases[i].test_name, bits_do_not_depend_on_the_way, NULL, NULL,
                                           (void *)(uintptr_t)&cases[i]};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
