#include "bench/work.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "planner/cost_model.h"

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
        int64_t ns = cost_model_ttft_ns(cost, trace->requests[i].n_prompt, n_cached, max_chunk);
        out[i] = (struct work){ns, ns, decode_ns(cost, &trace->requests[i])};
    }
}

double work_scale(const struct trace *trace, const struct work *work) {
    double sum_ns = 0, first_ms = -1, last_ms = 0;
    for (int i = 0; i < trace->n_requests; i++) {
        sum_ns += (double)work[i].prefill_ns + (double)work[i].decode_ns;
        if (trace->requests[i].after >= 0) continue;
        if (first_ms < 0) first_ms = trace->requests[i].arrival_ms;
        last_ms = trace->requests[i].arrival_ms;
    }
    double span_ns = (last_ms - first_ms) * 1e6;
    return trace->load > 0 && span_ns > 0 ? sum_ns / (trace->load * span_ns) : 1;
}

/* ---- bound ---- */

/* A piece of work with its window: a prompt, or an answer behind it. */
struct job {
    double release_ns, due_ns, left_ns;
};

struct candidate {
    int idx;
    double work_ns;
};

static int compare_release(const void *a, const void *b) {
    double x = ((const struct job *)a)->release_ns, y = ((const struct job *)b)->release_ns;
    return (x > y) - (x < y);
}

static int compare_work(const void *a, const void *b) {
    double x = ((const struct candidate *)a)->work_ns, y = ((const struct candidate *)b)->work_ns;
    return (x > y) - (x < y);
}

static void sift_down(struct job *heap, int n, int at) {
    for (;;) {
        int least = at;
        for (int child = 2 * at + 1; child <= 2 * at + 2 && child < n; child++)
            if (heap[child].due_ns < heap[least].due_ns) least = child;
        if (least == at) return;
        struct job moved = heap[at];
        heap[at] = heap[least];
        heap[least] = moved;
        at = least;
    }
}

static void push(struct job *heap, int *n, struct job job) {
    int at = (*n)++;
    for (; at > 0 && heap[(at - 1) / 2].due_ns > job.due_ns; at = (at - 1) / 2) heap[at] = heap[(at - 1) / 2];
    heap[at] = job;
}

static void pop(struct job *heap, int *n) {
    heap[0] = heap[--*n];
    sift_down(heap, *n, 0);
}

/* Earliest due first, preempted at releases, is optimal on one machine: whether all jobs fit. jobs: ascending release.
 * heap: [n_jobs] scratch. */
static bool do_fit(const struct job *jobs, int n_jobs, struct job *heap) {
    double now_ns = 0;
    int n_heap = 0, i = 0;
    while (i < n_jobs || n_heap > 0) {
        if (n_heap == 0 && jobs[i].release_ns > now_ns) now_ns = jobs[i].release_ns;
        for (; i < n_jobs && jobs[i].release_ns <= now_ns; i++) push(heap, &n_heap, jobs[i]);
        double until_ns = i < n_jobs ? jobs[i].release_ns : 1e300;
        struct job *first = &heap[0];
        if (now_ns + first->left_ns <= until_ns) {
            now_ns += first->left_ns;
            if (now_ns > first->due_ns + 1) return false;
            pop(heap, &n_heap);
        } else {
            first->left_ns -= until_ns - now_ns;
            now_ns = until_ns;
        }
    }
    return true;
}

static void make_jobs(const struct trace *trace, const struct work *work, double scale, int idx, struct job out[2]) {
    const struct trace_request *request = &trace->requests[idx];
    double arrival_ns = request->arrival_ms * 1e6 * scale, due_ns = 1e300;
    if (request->has_deadline)
        due_ns = arrival_ns + request->deadline_ms * 1e6 + request->deadline_solo_x * (double)work[idx].solo_ns;
    out[0] = (struct job){arrival_ns, due_ns, (double)work[idx].prefill_ns};
    /* An answer cannot start before its prompt could be done. */
    double pace_ns = (double)request->n_output * (double)WORK_TOKEN_NS;
    out[1] = (struct job){arrival_ns + out[0].left_ns, due_ns + pace_ns, (double)work[idx].decode_ns};
}

enum status work_bound(const struct trace *trace, const struct work *work, double scale, int *out_n_in_time) {
    size_t n = (size_t)trace->n_requests;
    struct candidate *candidates = mem_alloc_array(n, sizeof *candidates);
    struct job *kept = mem_alloc_array(2 * n + 2, sizeof *kept), *tried = mem_alloc_array(2 * n + 2, sizeof *tried),
               *heap = mem_alloc_array(2 * n + 2, sizeof *heap);
    enum status status = candidates && kept && tried && heap ? STATUS_OK : STATUS_NOMEM;
    int n_kept = 0, n_candidates = 0;
    *out_n_in_time = 0;
    for (int i = 0; i < trace->n_requests && !status; i++)
        if (trace->requests[i].after < 0)
            candidates[n_candidates++] = (struct candidate){i, (double)work[i].prefill_ns + (double)work[i].decode_ns};
    if (!status) qsort(candidates, (size_t)n_candidates, sizeof *candidates, compare_work);
    for (int i = 0; i < n_candidates; i++) {
        memcpy(tried, kept, (size_t)n_kept * sizeof *kept);
        make_jobs(trace, work, scale, candidates[i].idx, tried + n_kept);
        qsort(tried, (size_t)n_kept + 2, sizeof *tried, compare_release);
        if (!do_fit(tried, n_kept + 2, heap)) continue;
        memcpy(kept, tried, (size_t)(n_kept + 2) * sizeof *kept);
        n_kept += 2;
        ++*out_n_in_time;
    }
    mem_free(candidates);
    mem_free(kept);
    mem_free(tried);
    mem_free(heap);
    return status;
}
