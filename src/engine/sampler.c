#include "engine/sampler.h"

#include <math.h>

#include "base/mem.h"
#include "base/rng.h"
#include "kernels/scalar/exp_scalar.h"

#define GREEDY_TEMPERATURE 1e-3f /* below it nothing but exact ties could be sampled: they go to the lowest id */

enum status sampler_check(const struct sampling *sampling, struct status_note *note) {
    if (!(sampling->temperature >= 0 && sampling->temperature <= 100))
        return status_fail(note, STATUS_INVALID, "temperature %g is not within 0..100", (double)sampling->temperature);
    if (!(sampling->top_p > 0 && sampling->top_p <= 1))
        return status_fail(note, STATUS_INVALID, "top_p %g is not within 0..1 (0 excluded)", (double)sampling->top_p);
    if (!(sampling->min_p >= 0 && sampling->min_p <= 1))
        return status_fail(note, STATUS_INVALID, "min_p %g is not within 0..1", (double)sampling->min_p);
    if (sampling->top_k < 0) return status_fail(note, STATUS_INVALID, "top_k %d is negative", sampling->top_k);
    return STATUS_OK;
}

enum status sampler_init(struct sampler *sampler, int n_vocab) {
    *sampler = (struct sampler){.n_vocab = n_vocab,
                                .weights = mem_alloc_array((size_t)n_vocab, sizeof *sampler->weights),
                                .candidates = mem_alloc_array((size_t)n_vocab, sizeof *sampler->candidates)};
    if (sampler->weights && sampler->candidates) return STATUS_OK;
    sampler_deinit(sampler);
    return STATUS_NOMEM;
}

void sampler_deinit(struct sampler *sampler) {
    mem_free(sampler->weights);
    mem_free(sampler->candidates);
    *sampler = (struct sampler){0};
}

uint32_t sampler_argmax(const float *values, int n) {
    int best = 0;
    for (int i = 1; i < n; i++)
        if (values[i] > values[best] || isnan(values[best])) best = i;
    return (uint32_t)best;
}

/* ---- a heap of candidates: heavier first, of equals the lower id ---- */

static int is_before(const struct sampler *sampler, uint32_t a, uint32_t b) {
    float wa = sampler->weights[a], wb = sampler->weights[b];
    return wa > wb || (wa == wb && a < b);
}

static void sift_down(struct sampler *sampler, int n, int at) {
    uint32_t *heap = sampler->candidates;
    for (;;) {
        int first = at, left = 2 * at + 1;
        if (left < n && is_before(sampler, heap[left], heap[first])) first = left;
        if (left + 1 < n && is_before(sampler, heap[left + 1], heap[first])) first = left + 1;
        if (first == at) return;
        uint32_t swapped = heap[at];
        heap[at] = heap[first];
        heap[first] = swapped;
        at = first;
    }
}

/* Candidates that pass the filters come out of the heap, heaviest first, into its freed end; returns how many. */
static int keep_candidates(struct sampler *sampler, const struct sampling *sampling, int n, double total) {
    uint32_t *heap = sampler->candidates;
    int max_kept = sampling->top_k && sampling->top_k < n ? sampling->top_k : n, n_kept = 0;
    double kept = 0, enough = (double)sampling->top_p * total;
    for (int i = n / 2 - 1; i >= 0; i--) sift_down(sampler, n, i);
    float floor_weight = sampling->min_p * sampler->weights[heap[0]];
    while (n_kept < max_kept) {
        uint32_t top = heap[0];
        if (n_kept && (sampler->weights[top] < floor_weight || kept >= enough)) break;
        kept += (double)sampler->weights[top];
        heap[0] = heap[n - 1 - n_kept];
        heap[n - 1 - n_kept] = top;
        n_kept++;
        sift_down(sampler, n - n_kept, 0);
    }
    return n_kept;
}

uint32_t sampler_pick(struct sampler *sampler, const struct sampling *sampling, const float *logits,
                      uint32_t position) {
    uint32_t best = sampler_argmax(logits, sampler->n_vocab);
    if (sampling->temperature < GREEDY_TEMPERATURE || sampling->top_k == 1) return best;
    double total = 0;
    int n = 0;
    for (int i = 0; i < sampler->n_vocab; i++) {
        /* the maximum goes off before the division, so that no temperature can overflow */
        float weight = exp_scalar((logits[i] - logits[best]) / sampling->temperature);
        sampler->weights[i] = weight;
        if (!(weight > 0)) continue;
        total += (double)weight;
        sampler->candidates[n++] = (uint32_t)i;
    }
    if (n == 0) return best; /* every logit is NaN */
    int first = 0;
    if (sampling->top_k || sampling->top_p < 1 || sampling->min_p > 0) {
        int n_kept = keep_candidates(sampler, sampling, n, total);
        first = n - n_kept;
        total = 0;
        for (int i = first; i < n; i++) total += (double)sampler->weights[sampler->candidates[i]];
    }
    double at = rng_uniform(sampling->seed, sampling->choice, position) * total;
    for (int i = first; i < n - 1; i++) {
        at -= (double)sampler->weights[sampler->candidates[i]];
        if (at < 0) return sampler->candidates[i];
    }
    return sampler->candidates[n - 1];
}
