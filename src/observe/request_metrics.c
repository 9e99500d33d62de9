#include "observe/request_metrics.h"

#include <stdio.h>

#include "observe/prom_text.h"

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
}

const char *request_metrics_end_name(enum request_end end) {
    static const char *const names[REQUEST_N_ENDS] = {"stop", "length", "abort", "error"};
    REQUIRE((unsigned)end < REQUEST_N_ENDS);
    return names[end];
}

void request_metrics_gap(struct request_metrics *metrics, int64_t gap_ns) {
    histogram_add(&metrics->inter_token, (double)gap_ns / 1e9, 1);
}

static double seconds(int64_t ns) {
    return (double)ns / 1e9;
}

void request_metrics_finish(struct request_metrics *metrics, const struct request_record *record) {
    const struct request *request = record->request;
    const struct phase_stats *stats = &request->stats;
    int64_t received_ns = stats->received_ns ? stats->received_ns : stats->submitted_ns;
    int64_t prefill_ns = stats->part_ns[PHASE_PREFILL_OWN] + stats->part_ns[PHASE_PREFILL_LOST];
    metrics->n_ends[record->end]++;
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

static void write_one(struct prom_text *text, const char *name, const char *type, const char *help, double value) {
    prom_text_family(text, name, type, help);
    prom_text_sample(text, NULL, NULL, value);
}

static void write_histogram(struct prom_text *text, const char *name, const char *help,
                            const struct histogram *histogram) {
    prom_text_family(text, name, "histogram", help);
    prom_text_histogram(text, histogram);
}

static void write_state(struct prom_text *text, const struct request_metrics_now *now) {
    double n_held = now->engine.n_held_blocks, n_blocks = now->n_blocks > 0 ? now->n_blocks : 1;
    int n_running = 0, n_waiting = now->n_pending;
    for (int i = 0; i < REQUEST_N_CLASSES; i++) {
        n_running += now->engine.classes[i].n_running;
        n_waiting += now->engine.classes[i].n_waiting;
    }
    write_one(text, "vllm:num_requests_running", "gauge", "Requests of which rows have been computed.", n_running);
    write_one(text, "vllm:num_requests_waiting", "gauge", "Requests of which nothing has been computed yet.",
              n_waiting);
    write_one(text, "vllm:kv_cache_usage_perc", "gauge", "Share of KV blocks held by sequences; 1 is all of them.",
              n_held / n_blocks);
    write_one(text, "vllm:num_preemptions_total", "counter", "Times that a sequence lost its blocks to another one.",
              (double)now->engine.n_preempted);
}

static void write_counters(struct prom_text *text, const struct request_metrics *metrics) {
    write_one(text, "vllm:prefix_cache_queries_total", "counter", "Prompt tokens looked up in the prefix cache.",
              metrics->n_queried_tokens);
    write_one(text, "vllm:prefix_cache_hits_total", "counter", "Prompt tokens found in the prefix cache.",
              metrics->n_cached_tokens);
    write_one(text, "vllm:prompt_tokens_total", "counter",
              "Prompt tokens, computed and cached; once for all choices of a request.", metrics->n_prompt_tokens);
    write_one(text, "vllm:generation_tokens_total", "counter", "Tokens of answers.", metrics->n_generated_tokens);
    prom_text_family(text, "vllm:prompt_tokens_by_source_total", "counter",
                     "Prompt tokens by where their KV came from.");
    prom_text_sample(text, "source", "local_compute", metrics->n_prompt_tokens - metrics->n_cached_tokens);
    prom_text_sample(text, "source", "local_cache_hit", metrics->n_cached_tokens);
    prom_text_sample(text, "source", "external_kv_transfer", 0);
    prom_text_family(text, "vllm:request_success_total", "counter", "Requests by how they ended.");
    for (int i = 0; i < REQUEST_N_ENDS; i++)
        prom_text_sample(text, "finished_reason", request_metrics_end_name((enum request_end)i),
                         (double)metrics->n_ends[i]);
}

static void write_histograms(struct prom_text *text, const struct request_metrics *m) {
    write_histogram(text, "vllm:time_to_first_token_seconds", "From a request's arrival to its first token.", &m->ttft);
    write_histogram(text, "vllm:inter_token_latency_seconds", "Between two tokens of one answer.", &m->inter_token);
    write_histogram(text, "vllm:request_time_per_output_token_seconds", "Mean time per token after the first.",
                    &m->per_token);
    write_histogram(text, "vllm:e2e_request_latency_seconds", "From a request's arrival to its end.", &m->e2e);
    write_histogram(text, "vllm:request_queue_time_seconds", "Until the first step with a part of the prompt.",
                    &m->queue);
    write_histogram(text, "vllm:request_prefill_time_seconds", "From there to the end of the prompt.", &m->prefill);
    write_histogram(text, "vllm:request_decode_time_seconds", "From the first token to the last.", &m->decode);
    write_histogram(text, "vllm:request_inference_time_seconds", "Prefill and decode.", &m->inference);
    write_histogram(text, "vllm:request_prompt_tokens", "Prompt tokens of a request.", &m->n_prompt);
    write_histogram(text, "vllm:request_generation_tokens", "Tokens of a request's answers.", &m->n_generated);
    write_histogram(text, "vllm:request_max_num_generation_tokens", "Tokens that an answer could have had.",
                    &m->max_generated);
    write_histogram(text, "vllm:request_params_max_tokens", "max_tokens where a request gave it.",
                    &m->param_max_tokens);
    write_histogram(text, "vllm:request_params_n", "Choices of a request.", &m->param_n);
    write_histogram(text, "vllm:request_prefill_kv_computed_tokens", "Prompt tokens that were computed, not cached.",
                    &m->n_computed);
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
    write_one(&config, "vllm:cache_config_info", "gauge", "How the KV cache is laid out.", 1);
    text->status = config.status;
}

enum status request_metrics_write(const struct request_metrics *metrics, const struct request_metrics_now *now,
                                  struct str *out) {
    const char *const labels[] = {"model_name", now->model_name, "engine", "0", NULL};
    struct prom_text text;
    prom_text_init(&text, out, labels);
    write_state(&text, now);
    write_config(&text, now);
    write_counters(&text, metrics);
    write_histograms(&text, metrics);
    return text.status ? text.status : slo_write(&metrics->slo, now->model_name, out);
}
