#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "base/file_map.h"
#include "base/mem.h"
#include "cmd/cmd.h"
#include "cmd/cmd_engine.h"
#include "cmd/eval_kv.h"
#include "cmd/kv_type.h"
#include "cmd/reference.h"
#include "engine/engine_client.h"
#include "model/forward.h"

#define MAX_LOGIT_ROWS 128 /* of a step: logits of a long text come in pieces */

/* How close is right: tests/bounds.json holds the same figures and says where they are from. */
#define MAX_TINY_DIFF_STD 2e-3
#define SURE_GAP_TINY 0.02
#define SURE_GAP_REAL 0.5

/* One line of the result: a measure, what it is worth here, and its bound if it has one. */
struct measure {
    const char *name;
    double value;
    double bound; /* NAN: only told */
};

struct eval {
    const struct options *options;
    struct cmd_engine model;
    struct reference *reference;
    struct status_note note;
    int n_vocab;
    float *logits; /* [reference_max_tokens][n_vocab] */

    int n_steps, n_agree, n_sure, n_sure_agree; /* argmax, fed the reference ids */
    double max_diff_std, mean_nll, mean_kl;
    bool has_diff, has_nll, has_kl;
};

/* ---- logits ---- */

/* Logits of positions [from, n_tokens) of a text into eval->logits. */
static enum status compute(struct eval *eval, const uint32_t *tokens, int n_tokens, int from) {
    struct request *request = engine_client_make(tokens, n_tokens, 0);
    if (!request) return status_fail(&eval->note, STATUS_NOMEM, "no memory for %d tokens", n_tokens);
    request->logits = eval->logits;
    request->logits_from = from;
    enum status status = engine_client_run(eval->model.engine, request);
    if (status) eval->note = request->note;
    engine_client_free(&request);
    return status;
}

static double log_sum_exp(const float *logits, int n) {
    double max = (double)logits[sampler_argmax(logits, n)], sum = 0;
    for (int i = 0; i < n; i++) sum += exp((double)logits[i] - max);
    return max + log(sum);
}

/* ---- the three kinds of comparison ---- */

/* Fed prompt and reference answer at once: row i of the answer's part predicts reference token i. */
static enum status compare_greedy(struct eval *eval, const struct reference_case *item) {
    int n_tokens = item->n_prompt + item->n_greedy;
    enum status status = compute(eval, item->tokens, n_tokens, item->n_prompt - 1);
    if (status) return status;
    double sure_gap = eval->reference->kind == REFERENCE_TINY ? SURE_GAP_TINY : SURE_GAP_REAL;
    for (int i = 0; i < item->n_greedy; i++) {
        uint32_t best = sampler_argmax(eval->logits + (size_t)i * (size_t)eval->n_vocab, eval->n_vocab);
        bool is_equal = best == item->tokens[item->n_prompt + i], is_sure = item->gaps[i] > sure_gap;
        eval->n_steps++;
        eval->n_agree += is_equal;
        eval->n_sure += is_sure;
        eval->n_sure_agree += is_sure && is_equal;
    }
    return STATUS_OK;
}

/* |difference| of the last rows' logits over the reference's standard deviation. */
static enum status compare_logits(struct eval *eval, const struct reference_case *item) {
    if (!item->logits) return STATUS_OK;
    size_t n = (size_t)item->n_logit_rows * (size_t)eval->n_vocab;
    enum status status = compute(eval, item->tokens, item->n_prompt, item->n_prompt - item->n_logit_rows);
    if (status) return status;
    double sum = 0, sum_squares = 0, max = 0;
    for (size_t i = 0; i < n; i++) {
        double expected = (double)item->logits[i], diff = fabs(expected - (double)eval->logits[i]);
        sum += expected;
        sum_squares += expected * expected;
        if (!(diff <= max)) max = diff;
    }
    double mean = sum / (double)n, std = sqrt(sum_squares / (double)n - mean * mean);
    if (!(max / std <= eval->max_diff_std)) eval->max_diff_std = max / std;
    eval->has_diff = true;
    return STATUS_OK;
}

static enum status measure_nll(struct eval *eval, const struct reference *reference) {
    int n = reference->n_text;
    enum status status = compute(eval, reference->text, n, 0);
    if (status) return status;
    double sum = 0;
    for (int i = 0; i + 1 < n; i++) {
        const float *row = eval->logits + (size_t)i * (size_t)eval->n_vocab;
        sum += log_sum_exp(row, eval->n_vocab) - (double)row[reference->text[i + 1]];
    }
    eval->mean_nll = sum / (n - 1);
    eval->has_nll = true;
    return STATUS_OK;
}

/* KL(reference || ours), mean over the reference's positions; eval->logits holds the whole text. */
static void measure_kl(struct eval *eval, const struct reference *reference) {
    double total = 0;
    for (int r = 0; r < reference->n_positions; r++) {
        const uint16_t *expected = reference->logprobs + (size_t)r * (size_t)eval->n_vocab;
        const float *row = eval->logits + (size_t)reference->positions[r] * (size_t)eval->n_vocab;
        double norm = log_sum_exp(row, eval->n_vocab), sum = 0;
        for (int i = 0; i < eval->n_vocab; i++) {
            double log_p = (double)dtype_f16_to_f32(expected[i]);
            sum += exp(log_p) * (log_p - ((double)row[i] - norm));
        }
        total += sum;
    }
    eval->mean_kl = total / reference->n_positions;
    eval->has_kl = true;
}

static enum status compare_all(struct eval *eval) {
    const struct reference *reference = eval->reference;
    enum status status = STATUS_OK;
    for (int i = 0; i < reference->n_cases && !status; i++) {
        status = compare_logits(eval, &reference->cases[i]);
        if (!status) status = compare_greedy(eval, &reference->cases[i]);
    }
    if (!status && reference->n_text) status = measure_nll(eval, reference);
    if (!status && reference->logprobs) measure_kl(eval, reference);
    return status;
}

/* ---- result ---- */

static int gather(const struct eval *eval, struct measure out[8]) {
    int n = 0;
    if (eval->n_steps) {
        out[n++] = (struct measure){"greedy_agreement", (double)eval->n_agree / eval->n_steps, NAN};
        out[n++] = (struct measure){"sure_steps", eval->n_sure, NAN};
        out[n++] = (struct measure){"sure_disagreements", eval->n_sure - eval->n_sure_agree, 0};
    }
    if (eval->has_diff) out[n++] = (struct measure){"max_logit_diff_std", eval->max_diff_std, MAX_TINY_DIFF_STD};
    if (eval->has_nll) {
        out[n++] = (struct measure){"mean_nll", eval->mean_nll, NAN};
        out[n++] = (struct measure){"ppl", exp(eval->mean_nll), NAN};
    }
    enum dtype kv_dtype = eval->model.options.kv_dtype;
    bool has_kv_bytes = kv_dtype == DTYPE_I8 || kv_dtype == DTYPE_Q8_0;
    double max_kl = has_kv_bytes ? eval->reference->max_kl_int8_kv : eval->reference->max_kl;
    if (eval->has_kl) out[n++] = (struct measure){"mean_kl", eval->mean_kl, max_kl};
    return n;
}

static bool is_within(const struct measure *measure) {
    return isnan(measure->bound) || measure->value <= measure->bound;
}

static int report(const struct eval *eval) {
    struct measure measures[8];
    int n = gather(eval, measures);
    bool is_good = true;
    for (int i = 0; i < n; i++) is_good &= is_within(&measures[i]);
    if (eval->options->json) {
        json_t *root = json_object();
        for (int i = 0; i < n; i++) json_object_set_new(root, measures[i].name, json_real(measures[i].value));
        json_object_set_new(root, "within_bounds", json_boolean(is_good));
        json_dumpf(root, stdout, JSON_INDENT(2));
        putchar('\n');
        json_decref(root);
        return is_good ? 0 : CMD_EXIT_FAILURE;
    }
    for (int i = 0; i < n; i++) {
        printf("%-20s %.6g", measures[i].name, measures[i].value);
        if (!isnan(measures[i].bound))
            printf("   (bound %g: %s)", measures[i].bound, is_within(&measures[i]) ? "ok" : "MISSED");
        putchar('\n');
    }
    if (eval->reference->has_bf16_tables)
        puts("note: this reference was made with RoPE frequencies and embedding scale rounded to bf16; so they were "
             "here");
    return is_good ? 0 : CMD_EXIT_FAILURE;
}

static int run_eval(struct eval *eval, const char *model) {
    const char *path = eval->options->reference;
    enum status status = reference_load(&eval->reference, path, &eval->note);
    if (status) return cmd_fail(path, status, &eval->note);
    struct cmd_engine_needs needs = {.min_context = reference_max_tokens(eval->reference),
                                     .max_sequences = 1,
                                     .max_logit_rows = MAX_LOGIT_ROWS,
                                     .has_bf16_tables = eval->reference->has_bf16_tables};
    status = cmd_engine_open(&eval->model, model, eval->options, &needs, &eval->note);
    if (status) return cmd_fail(NULL, status, &eval->note);
    eval->n_vocab = engine_model(eval->model.engine)->n_vocab;
    if (eval->reference->n_vocab && eval->reference->n_vocab != eval->n_vocab) {
        status_fail(&eval->note, STATUS_INVALID, "made for a vocabulary of %d tokens, the model has %d",
                    eval->reference->n_vocab, eval->n_vocab);
        return cmd_fail(path, STATUS_INVALID, &eval->note);
    }
    size_t n_bytes = (size_t)needs.min_context * (size_t)eval->n_vocab * sizeof(float);
    eval->logits = mem_map_pages(n_bytes);
    if (!eval->logits) return cmd_fail(NULL, STATUS_NOMEM, NULL);
    status = compare_all(eval);
    int exit_code = status ? cmd_fail(path, status, &eval->note) : report(eval);
    mem_unmap_pages(eval->logits, n_bytes);
    return exit_code;
}

static int eval_kv(const struct options *options, int n_words, const char **words) {
    enum dtype dtype;
    struct status_note note = {0};
    if (n_words != 2) return cmd_usage("eval", "one MODEL is needed, %d given", n_words - 1);
    if (cmd_engine_check(options, &note)) return cmd_usage("eval", "%s", note.text);
    if (!kv_type_parse("--kv-cache-dtype", options->kv_cache_dtype, &dtype, &note) &&
        (dtype == DTYPE_F16 || dtype == DTYPE_F32))
        return cmd_usage("eval", "--kv-cache-dtype: %s is what others are compared with (int8, q8_0)",
                         options->kv_cache_dtype);
    return eval_kv_run(options, words[1]);
}

int cmd_eval(const struct options *options, int n_words, const char **words) {
    if (n_words >= 1 && strcmp(words[0], "kv") == 0) return eval_kv(options, n_words, words);
    if (n_words < 1 || strcmp(words[0], "reference") != 0)
        return cmd_usage("eval", "'%s' is not an evaluation (known: reference, kv)", n_words ? words[0] : "");
    if (n_words != 2) return cmd_usage("eval", "one MODEL is needed, %d given", n_words - 1);
    if (!options->reference) return cmd_usage("eval", "--reference FILE is missing");
    struct eval eval = {.options = options};
    if (cmd_engine_check(options, &eval.note)) return cmd_usage("eval", "%s", eval.note.text);
    int exit_code = run_eval(&eval, words[1]);
    cmd_engine_close(&eval.model);
    reference_free(&eval.reference);
    return exit_code;
}
