/* request_metrics: what the requests of a server added up to, under the names that dashboards for vLLM look for.
 *
 * Prompt and answer tokens are never merged; every prompt token is counted once, whatever the number of choices,
 * chunks or preemptions. Thread: io.   Source: names, labels and buckets of vLLM 0.33's /metrics. */
#ifndef KVICK_OBSERVE_REQUEST_METRICS_H
#define KVICK_OBSERVE_REQUEST_METRICS_H

#include "base/histogram.h"
#include "base/str.h"
#include "engine/engine.h"
#include "observe/key_metrics.h"
#include "observe/phase_metrics.h"
#include "observe/slo.h"

enum request_end { REQUEST_STOP, REQUEST_LENGTH, REQUEST_ABORT, REQUEST_ERROR, REQUEST_N_ENDS };

/* Why a request ended early: its client left, or did not read; the server stopped. */
enum request_cancel { REQUEST_LEFT, REQUEST_UNREAD, REQUEST_STOPPED, REQUEST_N_CANCELS };

/* One request to the engine that came home, as its client saw it. */
struct request_record {
    const struct request *request;
    enum request_end end;
    int n_completion; /* tokens of all choices that counted */
    int64_t max_tokens;
    const char *key; /* its name; NULL or "": none */
};

struct request_metrics {
    struct histogram ttft, inter_token, per_token, e2e, queue, prefill, decode, inference;
    struct histogram n_prompt, n_generated, max_generated, param_max_tokens, param_n, n_computed;
    uint64_t n_ends[REQUEST_N_ENDS], n_cancelled[REQUEST_N_CANCELS];
    double n_prompt_tokens, n_cached_tokens, n_generated_tokens;
    double n_queried_tokens; /* of requests that may use the cache */
    struct slo slo;          /* targets are the owner's to set */
    struct phase_metrics phases;
    struct key_metrics keys;
};

/* max_context: bounds of the histograms of lengths. */
void request_metrics_init(struct request_metrics *metrics, int max_context);

void request_metrics_finish(struct request_metrics *metrics, const struct request_record *record);

/* As metrics and the log spell it. */
const char *request_metrics_end_name(enum request_end end);

/* A token came gap_ns after the one before it in the same answer. */
void request_metrics_gap(struct request_metrics *metrics, enum request_class class_, int64_t gap_ns);

struct request_metrics_now {
    const char *model_name;
    struct engine_stats engine;
    int n_pending; /* requests that the engine has not answered yet */
    int block_tokens, n_blocks;
    const char *kv_dtype;
    bool has_prefix_cache;
};

/* The whole text. Errors: those of str_append. */
WARN_UNUSED enum status request_metrics_write(const struct request_metrics *metrics,
                                              const struct request_metrics_now *now, struct str *out);

#endif
