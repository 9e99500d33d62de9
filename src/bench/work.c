#include "bench/work.h"

#include "base/mem.h"
#include "bench/offline_bound.h"
#include "planner/cost_model.h"

#define NO_DEADLINE (INT64_MAX / 4)

/* ---- work ---- */

/* Whether an earlier request has computed the text that this one shares. */
static bool is_text_known(const struct trace *trace, int idx) {
    const struct trace_request *request = &trace->requests[idx];
    for (int i = 0; i < idx; i++)
        if (trace->requests[i].n_shared >= request->n_shared && trace->requests[i].shared_id == request->shared_id)
            return true;
    return false;
}

static int n_cached_of(const struct trace *trace, int idx) {
    const struct trace_request *request = &trace->requests[idx];
    int n = request->n_prompt - request->n_own; /* of what it continues */
    if (n > 0) return n - 1;                    /* its last token was never run */
    n = request->n_shared && is_text_known(trace, idx) ? request->n_shared : 0;
    return n < request->n_prompt ? n : request->n_prompt - 1;
}

static int64_t decode_ns(const struct step_cost *cost, const struct trace_request *request) {
    struct step_shape shape = {0};
    for (int i = 0; i < WORK_STREAMS; i++)
        step_cost_add_decode(cost, &shape, request->n_prompt + request->n_output / 2);
    return request->n_output > 1 ? (request->n_output - 1) * (step_cost_ns(cost, &shape) / WORK_STREAMS) : 0;
}

void work_of_trace(const struct trace *trace, const struct step_cost *cost, int max_chunk, bool has_cache,
                   struct work *out) {
    for (int i = 0; i < trace->n_requests; i++) {
        int n_cached = has_cache ? n_cached_of(trace, i) : 0;
        int64_t ns = cost_model_ttft_ns(cost, trace->requests[i].n_prompt, n_cached, max_chunk, NULL);
        out[i] = (struct work){ns, ns, decode_ns(cost, &trace->requests[i])};
    }
}

double work_sum_ns(const struct trace *trace, const struct work *work) {
    double sum_ns = 0;
    for (int i = 0; i < trace->n_requests; i++) sum_ns += (double)work[i].prefill_ns + (double)work[i].decode_ns;
    return sum_ns;
}

double work_scale(const struct trace *trace, double busy_ns) {
    double first_ms = -1, last_ms = 0;
    for (int i = 0; i < trace->n_requests; i++) {
        if (trace->requests[i].after >= 0) continue;
        if (first_ms < 0) first_ms = trace->requests[i].arrival_ms;
        last_ms = trace->requests[i].arrival_ms;
    }
    double span_ns = (last_ms - first_ms) * 1e6;
    return trace->load > 0 && span_ns > 0 ? busy_ns / (trace->load * span_ns) : 1;
}

/* ---- bound ---- */

bool work_has_bound(const struct trace *trace) {
    for (int i = 0; i < trace->n_requests; i++)
        if (trace->requests[i].after >= 0) return false;
    return trace->n_requests <= WORK_MAX_BOUND;
}

static struct offline_job job_of(const struct trace_request *request, const struct work *work, double scale,
                                 double stretch) {
    int64_t arrival_ns = (int64_t)(request->arrival_ms * 1e6 * scale), due_ns = NO_DEADLINE;
    if (request->has_deadline)
        due_ns = arrival_ns + (int64_t)(request->deadline_ms * 1e6 + request->deadline_solo_x * (double)work->solo_ns);
    return (struct offline_job){arrival_ns, due_ns, (int64_t)((double)work->prefill_ns * stretch)};
}

enum status work_bound(const struct trace *trace, const struct work *work, double scale, double busy_ns,
                       double *out_n_in_time) {
    size_t n = (size_t)trace->n_requests;
    double prefill_ns = 0;
    *out_n_in_time = -1;
    if (!work_has_bound(trace)) return STATUS_OK;
    struct offline_job *jobs = mem_alloc_array(n, sizeof *jobs);
    if (!jobs) return STATUS_NOMEM;
    for (size_t i = 0; i < n; i++) prefill_ns += (double)work[i].prefill_ns;
    double stretch = prefill_ns > 0 ? busy_ns / prefill_ns : 1;
    for (size_t i = 0; i < n; i++) jobs[i] = job_of(&trace->requests[i], &work[i], scale, stretch);
    enum status status = offline_bound_max_jobs(jobs, trace->n_requests, out_n_in_time);
    mem_free(jobs);
    return status;
}
