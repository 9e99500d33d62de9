#include "observe/request_metrics.h"

#include <stdio.h>

#include "observe/engine_metrics.h"
#include "observe/metric_table.h"

#define N_OF(array) ((int)(sizeof(array) / sizeof((array)[0])))

static const double ttft_bounds[] = {.001, .005, .01, .02, .04, .06, .08, .1, .25, .5,  .75,
                                     1,    2.5,  5,   7.5, 10,  20,  40,  80, 160, 640, 2560};
static const double token_bounds[] = {.01, .025, .05, .075, .1,  .15, .2, .3, .4, .5,
                                      .75, 1,    2.5, 5,    7.5, 10,  20, 40, 80};
static const double latency_bounds[] = {.3, .5, .8, 1,  1.5, 2,   2.5, 5,   10,   15,  20,
                                        30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680};
static const double n_bounds[] = {1, 2, 5, 10, 20};
/* 1, 2, 5, 10, ... as far as a context goes. */
static const double length_bounds[] = {1,    2,    5,     10,    20,    50,     100,    200,    500,    1000,
                                       2000, 5000, 10000, 20000, 50000, 100000, 200000, 500000, 1000000};

static int n_lengths(int max_context) {
    int n = 1;
    while (n < N_OF(length_bounds) && length_bounds[n - 1] < max_context) n++;
    return n;
}

void request_metrics_init(struct request_metrics *metrics, int max_context) {
    *metrics = (struct request_metrics){0};
    struct histogram *const latencies[] = {&metrics->e2e, &metrics->queue, &metrics->prefill, &metrics->decode,
                                           &metrics->inference};
    struct histogram *const lengths[] = {&metrics->n_prompt, &metrics->n_generated, &metrics->max_generated,
                                         &metrics->param_max_tokens, &metrics->n_computed};
    for (int i = 0; i < N_OF(latencies); i++) histogram_init(latencies[i], latency_bounds, N_OF(latency_bounds));
    for (int i = 0; i < N_OF(lengths); i++) histogram_init(lengths[i], length_bounds, n_lengths(max_context));
    histogram_init(&metrics->ttft, ttft_bounds, N_OF(ttft_bounds));
    histogram_init(&metrics->inter_token, token_bounds, N_OF(token_bounds));
    histogram_init(&metrics->per_token, token_bounds, N_OF(token_bounds));
    histogram_init(&metrics->param_n, n_bounds, N_OF(n_bounds));
    phase_metrics_init(&metrics->phases);
}

const char *request_metrics_end_name(enum request_end end) {
    static const char *const names[REQUEST_N_ENDS] = {"stop", "length", "abort", "error"};
    REQUIRE((unsigned)end < REQUEST_N_ENDS);
    return names[end];
}

void request_metrics_gap(struct request_metrics *metrics, enum request_class class_, int64_t gap_ns) {
    histogram_add(&metrics->inter_token, (double)gap_ns / 1e9, 1);
    phase_metrics_gap(&metrics->phases, class_, gap_ns);
}

static double seconds(int64_t ns) {
    return (double)ns / 1e9;
}

static void count_cancelled(struct request_metrics *metrics, const struct request_record *record) {
    enum finish_reason reason = record->request->choices[0].reason;
    if (reason == FINISH_UNREAD)
        metrics->n_cancelled[REQUEST_UNREAD]++;
    else if (record->end == REQUEST_ABORT)
        metrics->n_cancelled[REQUEST_LEFT]++;
    else if (record->end == REQUEST_ERROR && reason == FINISH_CANCELLED)
        metrics->n_cancelled[REQUEST_STOPPED]++;
}

/* The key pays for what was computed, also of a prompt that was not computed to its end. */
static void count_key(struct request_metrics *metrics, const struct request_record *record) {
    const struct phase_stats *stats = &record->request->stats;
    int n_prefill = stats->n_done_tokens - stats->n_cached_tokens;
    key_metrics_count(&metrics->keys, record->key, n_prefill > 0 ? n_prefill : 0, record->n_completion);
}

void request_metrics_finish(struct request_metrics *metrics, const struct request_record *record) {
    const struct request *request = record->request;
    const struct phase_stats *stats = &request->stats;
    int64_t received_ns = stats->received_ns ? stats->received_ns : stats->submitted_ns;
    int64_t prefill_ns = stats->part_ns[PHASE_PREFILL_OWN] + stats->part_ns[PHASE_PREFILL_LOST];
    metrics->n_ends[record->end]++;
    count_cancelled(metrics, record);
    count_key(metrics, record);
    phase_metrics_finish(&metrics->phases, request);
    metrics->n_generated_tokens += record->n_completion;
    if (stats->first_token_ns) histogram_add(&metrics->ttft, seconds(stats->first_token_ns - received_ns), 1);
    if (stats->prefill_end_ns) { /* whose prompt was computed is counted once, however it ended */
        metrics->n_prompt_tokens += request->n_prompt;
        metrics->n_cached_tokens += stats->n_cached_tokens;
        if (request->has_cache) metrics->n_queried_tokens += request->n_prompt;
    }
    if (record->end == REQUEST_ABORT || record->end == REQUEST_ERROR) return;
    slo_count(&metrics->slo, request, record->n_completion);
    histogram_add(&metrics->e2e, seconds(stats->finished_ns - received_ns), 1);
    histogram_add(&metrics->queue, seconds(stats->part_ns[PHASE_QUEUE]), 1);
    histogram_add(&metrics->prefill, seconds(prefill_ns), 1);
    histogram_add(&metrics->decode, seconds(stats->part_ns[PHASE_DECODE]), 1);
    histogram_add(&metrics->inference, seconds(prefill_ns + stats->part_ns[PHASE_DECODE]), 1);
    if (record->n_completion > 1 && request->n_choices == 1)
        histogram_add(&metrics->per_token,
                      seconds(stats->last_token_ns - stats->first_token_ns) / (record->n_completion - 1), 1);
    histogram_add(&metrics->n_prompt, request->n_prompt, 1);
    histogram_add(&metrics->n_generated, record->n_completion, 1);
    histogram_add(&metrics->max_generated, request->max_new, 1);
    if (record->max_tokens >= 0) histogram_add(&metrics->param_max_tokens, (double)record->max_tokens, 1);
    histogram_add(&metrics->param_n, request->n_choices, 1);
    histogram_add(&metrics->n_computed, request->n_prompt - stats->n_cached_tokens, 1);
}

/* ---- text ---- */

static void write_state(struct prom_text *text, const struct request_metrics_now *now) {
    double n_held = now->engine.n_held_blocks, n_blocks = now->n_blocks > 0 ? now->n_blocks : 1;
    struct engine_class_stats all = engine_stats_all(&now->engine);
    metric_table_value(text, METRIC_VLLM_RUNNING, all.n_running);
    metric_table_value(text, METRIC_VLLM_WAITING, all.n_waiting + now->n_pending);
    metric_table_value(text, METRIC_VLLM_KV_USAGE, n_held / n_blocks);
    metric_table_value(text, METRIC_VLLM_PREEMPTIONS, (double)now->engine.n_preempted);
}

static void write_counters(struct prom_text *text, const struct request_metrics *metrics) {
    metric_table_value(text, METRIC_VLLM_PREFIX_QUERIES, metrics->n_queried_tokens);
    metric_table_value(text, METRIC_VLLM_PREFIX_HITS, metrics->n_cached_tokens);
    metric_table_value(text, METRIC_VLLM_PROMPT_TOKENS, metrics->n_prompt_tokens);
    metric_table_value(text, METRIC_VLLM_OUTPUT_TOKENS, metrics->n_generated_tokens);
    metric_table_begin(text, METRIC_VLLM_TOKENS_BY_SOURCE);
    prom_text_sample(text, "source", "local_compute", metrics->n_prompt_tokens - metrics->n_cached_tokens);
    prom_text_sample(text, "source", "local_cache_hit", metrics->n_cached_tokens);
    prom_text_sample(text, "source", "external_kv_transfer", 0);
    metric_table_begin(text, METRIC_VLLM_ENDS);
    for (int i = 0; i < REQUEST_N_ENDS; i++)
        prom_text_sample(text, "finished_reason", request_metrics_end_name((enum request_end)i),
                         (double)metrics->n_ends[i]);
}

static void write_cancelled(struct prom_text *text, const struct request_metrics *metrics) {
    static const char *const reasons[REQUEST_N_CANCELS] = {"left", "unread", "stopped"};
    metric_table_begin(text, METRIC_CANCELLED);
    for (int i = 0; i < REQUEST_N_CANCELS; i++)
        prom_text_sample(text, "reason", reasons[i], (double)metrics->n_cancelled[i]);
}

static void write_histograms(struct prom_text *text, const struct request_metrics *m) {
    metric_table_histogram(text, METRIC_VLLM_TTFT, &m->ttft);
    metric_table_histogram(text, METRIC_VLLM_INTER_TOKEN, &m->inter_token);
    metric_table_histogram(text, METRIC_VLLM_PER_TOKEN, &m->per_token);
    metric_table_histogram(text, METRIC_VLLM_E2E, &m->e2e);
    metric_table_histogram(text, METRIC_VLLM_QUEUE, &m->queue);
    metric_table_histogram(text, METRIC_VLLM_PREFILL, &m->prefill);
    metric_table_histogram(text, METRIC_VLLM_DECODE, &m->decode);
    metric_table_histogram(text, METRIC_VLLM_INFERENCE, &m->inference);
    metric_table_histogram(text, METRIC_VLLM_N_PROMPT, &m->n_prompt);
    metric_table_histogram(text, METRIC_VLLM_N_OUTPUT, &m->n_generated);
    metric_table_histogram(text, METRIC_VLLM_MAX_OUTPUT, &m->max_generated);
    metric_table_histogram(text, METRIC_VLLM_PARAM_MAX_TOKENS, &m->param_max_tokens);
    metric_table_histogram(text, METRIC_VLLM_PARAM_N, &m->param_n);
    metric_table_histogram(text, METRIC_VLLM_N_COMPUTED, &m->n_computed);
}

/* Its labels are its message; no model_name among them, as in vLLM. */
static void write_config(struct prom_text *text, const struct request_metrics_now *now) {
    char block_tokens[16], n_blocks[16];
    snprintf(block_tokens, sizeof block_tokens, "%d", now->block_tokens);
    snprintf(n_blocks, sizeof n_blocks, "%d", now->n_blocks);
    const char *const labels[] = {"engine",
                                  "0",
                                  "block_size",
                                  block_tokens,
                                  "num_gpu_blocks",
                                  n_blocks,
                                  "cache_dtype",
                                  now->kv_dtype,
                                  "enable_prefix_caching",
                                  now->has_prefix_cache ? "True" : "False",
                                  NULL};
    struct prom_text config;
    if (text->status) return;
    prom_text_init(&config, text->out, labels);
    metric_table_value(&config, METRIC_VLLM_CONFIG, 1);
    text->status = config.status;
}

enum status request_metrics_write(const struct request_metrics *metrics, const struct request_metrics_now *now,
                                  struct str *out) {
    struct prom_text text;
    metric_table_init(&text, out, now->model_name);
    write_state(&text, now);
    write_config(&text, now);
    write_counters(&text, metrics);
    write_histograms(&text, metrics);
    phase_metrics_write(&metrics->phases, now->engine.interference_ns, &text);
    engine_metrics_write(&text, &now->engine, now->n_pending);
    write_cancelled(&text, metrics);
    slo_write(&metrics->slo, &text);
    key_metrics_write(&metrics->keys, &text);
    return text.status;
}
