#include "bench/outcomes.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

#define MS_DIGITS 4
#define MAX_LABELS 32

/* Values of which percentiles are asked. */
struct values {
    double *at;
    size_t n;
};

enum status outcomes_init(struct outcomes *outcomes, const struct trace *trace) {
    size_t n = (size_t)trace->n_requests;
    *outcomes = (struct outcomes){.trace = trace, .of = mem_alloc_array(n, sizeof *outcomes->of)};
    outcomes->totals = (struct outcomes_totals){-1, -1, -1, -1, -1, -1, -1, -1};
    if (!outcomes->of) return STATUS_NOMEM;
    for (size_t i = 0; i < n; i++) {
        struct outcome *outcome = &outcomes->of[i];
        outcome->deadline_ns = outcome->predicted_ns = -1;
        outcome->n_prompt = trace->requests[i].n_prompt;
        outcome->token_ns = mem_alloc_array((size_t)trace->requests[i].n_output, sizeof *outcome->token_ns);
        if (!outcome->token_ns) return STATUS_NOMEM;
    }
    return STATUS_OK;
}

void outcomes_deinit(struct outcomes *outcomes) {
    for (int i = 0; outcomes->of && i < outcomes->trace->n_requests; i++) mem_free(outcomes->of[i].token_ns);
    mem_free(outcomes->of);
    *outcomes = (struct outcomes){0};
}

/* From arrival to the first token; -1 if there was none. A prompt without an answer counts its end. */
static double ttft_ms_of(const struct outcome *outcome) {
    if (outcome->n_tokens > 0) return phase_stats_ms(outcome->arrival_ns, outcome->token_ns[0]);
    return outcome->kind == OUTCOME_FINISHED ? phase_stats_ms(outcome->arrival_ns, outcome->finished_ns) : -1;
}

/* The first token came, and before its deadline if it had one. */
static bool is_in_time(const struct outcome *outcome) {
    double ttft_ms = ttft_ms_of(outcome);
    if (ttft_ms < 0 || outcome->kind != OUTCOME_FINISHED) return false;
    return outcome->deadline_ns < 0 || ttft_ms <= phase_stats_ms(outcome->arrival_ns, outcome->deadline_ns);
}

/* Between two tokens of the answer; -1 with less than two. */
static double longest_gap_ms(const struct outcome *outcome) {
    double longest = -1;
    for (int i = 1; i < outcome->n_tokens; i++)
        longest = fmax(longest, phase_stats_ms(outcome->token_ns[i - 1], outcome->token_ns[i]));
    return longest;
}

/* ---- statistics ---- */

static int compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Nearest rank; values are sorted and not empty. */
static double percentile(const struct values *values, double share) {
    size_t rank = (size_t)ceil(share * (double)values->n);
    return values->at[rank ? rank - 1 : 0];
}

static json_t *rounded(double value) {
    double scale = pow(10, MS_DIGITS);
    return json_real(round(value * scale) / scale);
}

static json_t *number_or_null(double value) {
    return value >= 0 ? rounded(value) : json_null();
}

static json_t *percentiles(struct values *values) {
    static const struct {
        const char *name;
        double share;
    } asked[] = {{"p50", 0.5}, {"p95", 0.95}, {"p99", 0.99}, {"p999", 0.999}, {"max", 1}};
    if (values->n == 0) return json_null();
    json_t *json = json_object();
    qsort(values->at, values->n, sizeof *values->at, compare);
    for (size_t i = 0; i < sizeof asked / sizeof asked[0]; i++)
        json_object_set_new(json, asked[i].name, rounded(percentile(values, asked[i].share)));
    json_object_set_new(json, "n", json_integer((json_int_t)values->n));
    return json;
}

/* A refusal that admission did not make: the request or the inbox. */
static const char *refusal_name(enum admission_reason reason) {
    return reason == ADMISSION_ADMITTED ? "other" : admission_reason_name(reason);
}

/* What a summary is of: a label, or all; a class if >= 0; cold or cached requests if >= 0. */
struct selection {
    const char *label; /* NULL: all */
    int class_, is_cached;
};

static bool is_selected(const struct outcomes *outcomes, int i, const struct selection *selection) {
    const struct trace_request *request = &outcomes->trace->requests[i];
    if (selection->label && strcmp(request->label, selection->label) != 0) return false;
    if (selection->class_ >= 0 && (int)request->class_ != selection->class_) return false;
    return selection->is_cached < 0 || (outcomes->of[i].n_cached > 0) == selection->is_cached;
}

typedef int value_fn(const struct outcome *outcome, double *out); /* out: [n_output + 1]; the number of values */

static int value_ttft(const struct outcome *outcome, double *out) {
    out[0] = ttft_ms_of(outcome);
    return out[0] >= 0;
}

static int value_gaps(const struct outcome *outcome, double *out) {
    int n = 0;
    for (int i = 1; i < outcome->n_tokens; i++)
        out[n++] = phase_stats_ms(outcome->token_ns[i - 1], outcome->token_ns[i]);
    return n;
}

static int value_longest_gap(const struct outcome *outcome, double *out) {
    out[0] = longest_gap_ms(outcome);
    return out[0] >= 0;
}

static int value_refused(const struct outcome *outcome, double *out) {
    out[0] = phase_stats_ms(outcome->submitted_ns, outcome->finished_ns);
    return outcome->kind == OUTCOME_REFUSED;
}

static double prediction_error_ms(const struct outcome *outcome) {
    return fabs(ttft_ms_of(outcome) - (double)outcome->predicted_ns / 1e6);
}

static bool is_predicted(const struct outcome *outcome) {
    return outcome->predicted_ns >= 0 && ttft_ms_of(outcome) > 0;
}

static int value_error(const struct outcome *outcome, double *out) {
    out[0] = prediction_error_ms(outcome);
    return is_predicted(outcome);
}

static int value_error_share(const struct outcome *outcome, double *out) {
    out[0] = prediction_error_ms(outcome) / ttft_ms_of(outcome);
    return is_predicted(outcome);
}

static json_t *distribution(const struct outcomes *outcomes, const struct selection *selection, value_fn *value) {
    size_t n_max = 1;
    for (int i = 0; i < outcomes->trace->n_requests; i++) n_max += (size_t)outcomes->of[i].n_tokens + 1;
    struct values values = {mem_alloc_array(n_max, sizeof(double)), 0};
    if (!values.at) return NULL;
    for (int i = 0; i < outcomes->trace->n_requests; i++)
        if (is_selected(outcomes, i, selection)) values.n += (size_t)value(&outcomes->of[i], values.at + values.n);
    json_t *json = percentiles(&values);
    mem_free(values.at);
    return json;
}

/* How many were refused for which reason. */
static json_t *refusals(const struct outcomes *outcomes, const struct selection *selection) {
    int n_of[ADMISSION_N_REASONS] = {0};
    json_t *json = json_object();
    for (int i = 0; i < outcomes->trace->n_requests; i++)
        if (outcomes->of[i].kind == OUTCOME_REFUSED && is_selected(outcomes, i, selection))
            n_of[outcomes->of[i].refusal]++;
    for (int i = 0; i < ADMISSION_N_REASONS; i++)
        if (n_of[i]) json_object_set_new(json, refusal_name((enum admission_reason)i), json_integer(n_of[i]));
    return json;
}

static json_t *counts(const struct outcomes *outcomes, const struct selection *selection, json_t *json) {
    int n = 0, n_of[OUTCOME_CANCELLED + 1] = {0}, n_in_time = 0;
    double n_prompt = 0, n_cached = 0, n_new = 0, wall_s = outcomes->totals.wall_ms / 1e3;
    for (int i = 0; i < outcomes->trace->n_requests; i++) {
        const struct outcome *outcome = &outcomes->of[i];
        if (!is_selected(outcomes, i, selection)) continue;
        n++;
        n_of[outcome->kind]++;
        n_in_time += is_in_time(outcome);
        n_new += outcome->n_tokens;
        if (outcome->kind != OUTCOME_FINISHED) continue;
        n_prompt += outcome->n_prompt;
        n_cached += outcome->n_cached;
    }
    json_object_set_new(json, "offered", json_integer(n));
    json_object_set_new(json, "finished", json_integer(n_of[OUTCOME_FINISHED]));
    json_object_set_new(json, "refused", json_integer(n_of[OUTCOME_REFUSED]));
    json_object_set_new(json, "refused_by", refusals(outcomes, selection));
    json_object_set_new(json, "cancelled", json_integer(n_of[OUTCOME_CANCELLED]));
    json_object_set_new(json, "skipped", json_integer(n_of[OUTCOME_SKIPPED]));
    json_object_set_new(json, "goodput", rounded(n ? (double)n_in_time / n : 0));
    json_object_set_new(json, "prompt_tokens", json_integer((json_int_t)n_prompt));
    json_object_set_new(json, "cached_tokens", json_integer((json_int_t)n_cached));
    json_object_set_new(json, "new_tokens", json_integer((json_int_t)n_new));
    json_object_set_new(json, "prompt_tok_s", number_or_null(wall_s > 0 ? (n_prompt - n_cached) / wall_s : -1));
    json_object_set_new(json, "new_tok_s", number_or_null(wall_s > 0 ? n_new / wall_s : -1));
    return json;
}

static json_t *summary(const struct outcomes *outcomes, const struct selection *selection) {
    static const struct {
        const char *name;
        value_fn *value;
    } asked[] = {{"ttft_ms", value_ttft},
                 {"gap_ms", value_gaps},
                 {"longest_gap_ms", value_longest_gap},
                 {"refused_after_ms", value_refused},
                 {"prediction_error_ms", value_error},
                 {"prediction_error_share", value_error_share}};
    json_t *json = counts(outcomes, selection, json_object());
    for (size_t i = 0; i < sizeof asked / sizeof asked[0]; i++)
        json_object_set_new(json, asked[i].name, distribution(outcomes, selection, asked[i].value));
    return json;
}

static json_t *by_label(const struct outcomes *outcomes) {
    const struct trace *trace = outcomes->trace;
    json_t *json = json_object();
    for (int i = 0; i < trace->n_requests && json_object_size(json) < MAX_LABELS; i++) {
        const char *label = trace->requests[i].label;
        if (!label[0] || json_object_get(json, label)) continue;
        json_object_set_new(json, label, summary(outcomes, &(struct selection){label, -1, -1}));
    }
    return json;
}

/* Per class, cold and cached apart: what predictions are judged by. */
static json_t *by_class(const struct outcomes *outcomes) {
    static const char *const names[2][2] = {{"interactive, cold", "interactive, cached"},
                                            {"batch, cold", "batch, cached"}};
    json_t *json = json_object();
    for (int class_ = 0; class_ < 2; class_++)
        for (int cached = 0; cached < 2; cached++)
            json_object_set_new(json, names[class_][cached],
                                summary(outcomes, &(struct selection){NULL, class_, cached}));
    return json;
}

/* ---- requests ---- */

static json_t *phases_json(const struct outcome *outcome) {
    const struct phase_stats *phases = &outcome->phases;
    if (!outcome->has_phases) return json_null();
    json_t *json = json_object();
    for (int i = 0; i < N_PHASES; i++)
        json_object_set_new(json, phase_stats_name((enum phase)i), rounded((double)phases->part_ns[i] / 1e6));
    json_object_set_new(json, "unaccounted", rounded((double)phase_stats_unaccounted_ns(phases) / 1e6));
    json_object_set_new(json, "n_prefill_steps", json_integer(phases->n_prefill_steps));
    json_object_set_new(json, "n_preemptions", json_integer(phases->n_preemptions));
    return json;
}

static json_t *request_json(const struct outcomes *outcomes, int i) {
    static const char *const kinds[] = {"skipped", "finished", "refused", "cancelled"};
    const struct outcome *outcome = &outcomes->of[i];
    const struct trace_request *request = &outcomes->trace->requests[i];
    json_t *json = json_pack(
        "{s:i, s:s, s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:i, s:i, s:i, s:b, s:o}", "line", i + 2, "label",
        request->label, "outcome", kinds[outcome->kind], "arrival_ms", rounded((double)outcome->arrival_ns / 1e6),
        "late_ms", rounded(phase_stats_ms(outcome->arrival_ns, outcome->submitted_ns)), "ttft_ms",
        number_or_null(ttft_ms_of(outcome)), "predicted_ttft_ms", number_or_null((double)outcome->predicted_ns / 1e6),
        "longest_gap_ms", number_or_null(longest_gap_ms(outcome)), "total_ms",
        rounded(phase_stats_ms(outcome->arrival_ns, outcome->finished_ns)), "prompt_tokens", outcome->n_prompt,
        "cached_tokens", outcome->n_cached, "new_tokens", outcome->n_tokens, "in_time", is_in_time(outcome), "phases",
        phases_json(outcome));
    if (json && outcome->kind == OUTCOME_REFUSED) {
        json_object_set_new(json, "refusal", json_string(refusal_name(outcome->refusal)));
        json_object_set_new(json, "retry_after_ms",
                            outcome->retry_after_ns ? rounded((double)outcome->retry_after_ns / 1e6) : json_null());
        json_object_set_new(json, "note", json_string(outcome->note));
    }
    return json;
}

static json_t *totals_json(const struct outcomes_totals *totals) {
    return json_pack("{s:o, s:o, s:o, s:I, s:I, s:o, s:o, s:o}", "wall_ms", number_or_null(totals->wall_ms),
                     "stolen_ms", number_or_null(totals->stolen_ms), "waited_ms", number_or_null(totals->waited_ms),
                     "steps", (json_int_t)totals->n_steps, "preemptions", (json_int_t)totals->n_preemptions,
                     "outside_forward_share", number_or_null(totals->outside_forward_share), "kv_waste_share",
                     number_or_null(totals->kv_waste_share), "kv_contiguous_waste_share",
                     number_or_null(totals->kv_contiguous_waste_share));
}

json_t *outcomes_json(const struct outcomes *outcomes, bool with_requests) {
    json_t *json =
        json_pack("{s:s, s:o, s:o, s:o, s:o}", "trace", outcomes->trace->name, "totals", totals_json(&outcomes->totals),
                  "summary", summary(outcomes, &(struct selection){NULL, -1, -1}), "classes", by_class(outcomes),
                  "labels", by_label(outcomes));
    if (!json || !with_requests) return json;
    json_t *requests = json_array();
    for (int i = 0; i < outcomes->trace->n_requests; i++) json_array_append_new(requests, request_json(outcomes, i));
    json_object_set_new(json, "requests", requests);
    return json;
}
