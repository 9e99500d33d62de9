#include "engine/sampler.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "engine/top_select.h"
#include "kernels/scalar/exp_scalar.h"

#define GREEDY_TEMPERATURE 1e-3f /* below it nothing but exact ties could be sampled: they go to the lowest id */
#define BLOCK 512                /* weights summed as one, so that a draw skips them as one */
#define HEAVY_WEIGHT 0x1p-12f    /* of the likeliest token's */
#define BIN_SHIFT 19             /* exponent and four bits of a weight: bins a sixteenth of an octave wide */
#define N_BINS 2033              /* up to that of weight 1 */

enum status sampler_check(const struct sampling *sampling, struct status_note *note) {
    const struct {
        const char *name;
        float value, low, high;
    } ranges[] = {{"temperature", sampling->temperature, 0, 100},
                  {"min_p", sampling->min_p, 0, 1},
                  {"presence_penalty", sampling->presence_penalty, -2, 2},
                  {"frequency_penalty", sampling->frequency_penalty, -2, 2},
                  {"repetition_penalty", sampling->repetition_penalty, 0, 100}};
    for (size_t i = 0; i < sizeof ranges / sizeof ranges[0]; i++)
        if (!(ranges[i].value >= ranges[i].low && ranges[i].value <= ranges[i].high))
            return status_fail(note, STATUS_INVALID, "%s %g is not within %g..%g", ranges[i].name,
                               (double)ranges[i].value, (double)ranges[i].low, (double)ranges[i].high);
    if (!(sampling->top_p > 0 && sampling->top_p <= 1))
        return status_fail(note, STATUS_INVALID, "top_p %g is not within 0..1 (0 excluded)", (double)sampling->top_p);
    if (sampling->top_k < 0) return status_fail(note, STATUS_INVALID, "top_k %d is negative", sampling->top_k);
    if (sampling->n_biases < 0 || sampling->n_biases > SAMPLER_MAX_BIASES)
        return status_fail(note, STATUS_LIMIT, "logit_bias has %d entries, not within 0..%d", sampling->n_biases,
                           SAMPLER_MAX_BIASES);
    for (int i = 0; i < sampling->n_biases; i++) {
        struct logit_bias bias = sampling->biases[i];
        if (!(bias.bias >= -100 && bias.bias <= 100))
            return status_fail(note, STATUS_INVALID, "logit_bias %g of id %u is not within -100..100",
                               (double)bias.bias, bias.id);
    }
    return STATUS_OK;
}

enum status sampler_check_ids(const struct sampling *sampling, int n_vocab, struct status_note *note) {
    for (int i = 0; i < sampling->n_biases; i++)
        if (sampling->biases[i].id >= (uint32_t)n_vocab)
            return status_fail(note, STATUS_INVALID, "logit_bias of id %u, not below the vocabulary's %d",
                               sampling->biases[i].id, n_vocab);
    return STATUS_OK;
}

static bool init_scratch(struct sampler_scratch *scratch, int n_rows) {
    size_t n = (size_t)n_rows;
    *scratch = (struct sampler_scratch){.logits = mem_alloc_array(n, sizeof *scratch->logits),
                                        .weights = mem_alloc_array(n, sizeof *scratch->weights),
                                        .ids = mem_alloc_array(2 * n, sizeof *scratch->ids),
                                        .counts = mem_alloc_array(n, sizeof *scratch->counts),
                                        .sums = mem_alloc_array(n / BLOCK + 1, sizeof *scratch->sums),
                                        .bins = mem_alloc_array(N_BINS, sizeof *scratch->bins)};
    return scratch->logits && scratch->weights && scratch->ids && scratch->counts && scratch->sums && scratch->bins;
}

enum status sampler_init(struct sampler *sampler, int n_vocab, int n_rows, int n_workers,
                         const struct kernel_table *kernels) {
    *sampler = (struct sampler){.n_vocab = n_vocab,
                                .n_workers = n_workers,
                                .softmax_weights = kernels->softmax_weights,
                                .scratch = mem_alloc_array((size_t)n_workers, sizeof *sampler->scratch)};
    bool has_memory = sampler->scratch != NULL;
    for (int i = 0; has_memory && i < n_workers; i++) has_memory = init_scratch(&sampler->scratch[i], n_rows);
    if (has_memory) return STATUS_OK;
    sampler_deinit(sampler);
    return STATUS_NOMEM;
}

void sampler_deinit(struct sampler *sampler) {
    for (int i = 0; sampler->scratch && i < sampler->n_workers; i++) {
        mem_free(sampler->scratch[i].logits);
        mem_free(sampler->scratch[i].weights);
        mem_free(sampler->scratch[i].ids);
        mem_free(sampler->scratch[i].counts);
        mem_free(sampler->scratch[i].sums);
        mem_free(sampler->scratch[i].bins);
    }
    mem_free(sampler->scratch);
    *sampler = (struct sampler){0};
}

uint32_t sampler_argmax(const float *values, int n) {
    return top_select_max(values, n);
}

/* ---- what changes the logits ---- */

static bool has_penalties(const struct sampling *sampling) {
    return sampling->presence_penalty != 0 || sampling->frequency_penalty != 0 ||
           (sampling->repetition_penalty != 0 && sampling->repetition_penalty != 1);
}

static void apply_mask(float *logits, const uint32_t *mask, int n_vocab) {
    for (int first = 0; first < n_vocab; first += 32) {
        uint32_t word = mask[first / 32];
        int n = n_vocab - first < 32 ? n_vocab - first : 32;
        if (word == UINT32_MAX) continue;
        for (int i = 0; i < n; i++)
            if (!(word >> i & 1)) logits[first + i] = -INFINITY;
    }
}

/* Of every token that came, once: `counts` says how often, and is 0 again afterwards. */
static void penalise(struct sampler_scratch *scratch, const struct sampler_ask *ask) {
    const struct sampling *sampling = ask->sampling;
    float repetition = sampling->repetition_penalty;
    float *logits = scratch->logits;
    uint32_t *counts = scratch->counts;
    if (repetition != 0 && repetition != 1) {
        for (int i = 0; i < ask->n_tokens; i++) {
            uint32_t id = ask->tokens[i];
            if (counts[id]++) continue;
            logits[id] = logits[id] > 0 ? logits[id] / repetition : logits[id] * repetition;
        }
        for (int i = 0; i < ask->n_tokens; i++) counts[ask->tokens[i]] = 0;
    }
    if (sampling->presence_penalty == 0 && sampling->frequency_penalty == 0) return;
    for (int i = ask->n_prompt; i < ask->n_tokens; i++) counts[ask->tokens[i]]++;
    for (int i = ask->n_prompt; i < ask->n_tokens; i++) {
        uint32_t id = ask->tokens[i];
        if (!counts[id]) continue;
        logits[id] -= sampling->frequency_penalty * (float)counts[id];
        logits[id] -= sampling->presence_penalty;
        counts[id] = 0;
    }
}

/* The logits that count: the model's own if nothing changes them. */
static const float *edit_logits(const struct sampler *sampler, struct sampler_scratch *scratch,
                                const struct sampler_ask *ask) {
    const struct sampling *sampling = ask->sampling;
    if (!ask->mask && !ask->n_banned && !sampling->n_biases && !has_penalties(sampling)) return ask->logits;
    memcpy(scratch->logits, ask->logits, (size_t)sampler->n_vocab * sizeof(float));
    if (ask->mask) apply_mask(scratch->logits, ask->mask, sampler->n_vocab);
    for (int i = 0; i < ask->n_banned; i++)
        if (ask->banned[i] < (uint32_t)sampler->n_vocab) scratch->logits[ask->banned[i]] = -INFINITY;
    for (int i = 0; i < sampling->n_biases; i++) scratch->logits[sampling->biases[i].id] += sampling->biases[i].bias;
    if (has_penalties(sampling)) penalise(scratch, ask);
    return scratch->logits;
}

/* ---- sums ---- */

/* Of at most BLOCK weights, in eight chains: an order that vectors keep. */
static double sum_block(const float *weights, int n) {
    double lanes[8] = {0};
    int i = 0;
    for (; i + 8 <= n; i += 8)
        for (int lane = 0; lane < 8; lane++) lanes[lane] += (double)weights[i + lane];
    for (int lane = 0; i < n; i++, lane++) lanes[lane] += (double)weights[i];
    return ((lanes[0] + lanes[4]) + (lanes[2] + lanes[6])) + ((lanes[1] + lanes[5]) + (lanes[3] + lanes[7]));
}

static double sum_weights(struct sampler_scratch *scratch, int n) {
    double total = 0;
    for (int i = 0; i * BLOCK < n; i++) {
        int first = i * BLOCK;
        scratch->sums[i] = sum_block(scratch->weights + first, n - first < BLOCK ? n - first : BLOCK);
        total += scratch->sums[i];
    }
    return total;
}

/* ---- drawing ---- */

static double draw(const struct sampler_ask *ask) {
    return rng_uniform(ask->sampling->seed, ask->sampling->choice + ask->choice, (uint32_t)ask->n_tokens);
}

/* Of the whole vocabulary, in order of ids. */
static uint32_t draw_any(const struct sampler *sampler, const struct sampler_scratch *scratch, double at,
                         uint32_t best) {
    int n = sampler->n_vocab, i = 0;
    uint32_t last = best;
    while (i + BLOCK < n && at >= scratch->sums[i / BLOCK]) {
        at -= scratch->sums[i / BLOCK];
        i += BLOCK;
    }
    for (; i < n; i++) {
        if (!(scratch->weights[i] > 0)) continue;
        last = (uint32_t)i;
        at -= (double)scratch->weights[i];
        if (at < 0) break;
    }
    return last;
}

/* Of the candidates ids[0, n), with weights[id]. */
static uint32_t draw_candidate(const struct sampler_scratch *scratch, const uint32_t *ids, int n, double u) {
    double total = 0;
    for (int i = 0; i < n; i++) total += (double)scratch->weights[ids[i]];
    double at = u * total;
    for (int i = 0; i < n - 1; i++) {
        at -= (double)scratch->weights[ids[i]];
        if (at < 0) return ids[i];
    }
    return ids[n - 1];
}

/* ---- filters ---- */

/* How many of the first candidates, heaviest first, reach the share top_p; at least one. */
static int cut_at_share(const struct sampler_scratch *scratch, const uint32_t *ids, int n, float top_p) {
    double total = 0, kept = 0;
    int n_kept = 0;
    if (top_p >= 1) return n;
    for (int i = 0; i < n; i++) total += (double)scratch->weights[ids[i]];
    while (n_kept < n && (n_kept == 0 || kept < (double)top_p * total)) kept += (double)scratch->weights[ids[n_kept++]];
    return n_kept;
}

/* With top_k few logits are looked at closely: the vocabulary's weights are never computed. */
static uint32_t pick_of_top_k(const struct sampler *sampler, struct sampler_scratch *scratch,
                              const struct sampler_ask *ask, const float *logits) {
    const struct sampling *sampling = ask->sampling;
    int n = top_select(logits, sampler->n_vocab, sampling->top_k, scratch->ids), n_kept = 0;
    float max = logits[scratch->ids[0]];
    for (; n_kept < n; n_kept++) {
        uint32_t id = scratch->ids[n_kept];
        float weight = exp_scalar((logits[id] - max) / sampling->temperature);
        if (n_kept && !(weight > 0 && weight >= sampling->min_p)) break;
        scratch->weights[id] = weight;
    }
    n_kept = cut_at_share(scratch, scratch->ids, n_kept, sampling->top_p);
    return draw_candidate(scratch, scratch->ids, n_kept, draw(ask));
}

/* Ids with at least this weight among [from, to), behind n that there are; returns how many there are then. */
static int collect(struct sampler_scratch *scratch, int n, int from, int to, float floor_weight) {
    for (int i = from; i < to; i++)
        if (scratch->weights[i] >= floor_weight && scratch->weights[i] > 0) scratch->ids[n++] = (uint32_t)i;
    return n;
}

/* Of the whole vocabulary, in order of ids; their sum goes to *out_total. */
static int collect_heavy(struct sampler_scratch *scratch, int n_vocab, float floor_weight, double *out_total) {
    int n = 0, first = 0;
    *out_total = 0;
    for (; first + 16 <= n_vocab; first += 16)
        if (top_select_any_at_least(scratch->weights + first, floor_weight))
            n = collect(scratch, n, first, first + 16, floor_weight);
    n = collect(scratch, n, first, n_vocab, floor_weight);
    for (int i = 0; i < n; i++) *out_total += (double)scratch->weights[scratch->ids[i]];
    return n;
}

/* Weights of nearly one size share a bin, the heaviest in the last one. */
static int bin_of(float weight) {
    uint32_t bits;
    memcpy(&bits, &weight, sizeof bits);
    return (int)(bits >> BIN_SHIFT);
}

/* Of the candidates ids[0, n) those of the heaviest bins that reach `enough` stay, and of the bin that gets there only
 * as many as it takes; all in order of ids. Nothing but that one bin is sorted. */
static int cut_heaviest(struct sampler_scratch *scratch, int n, double enough) {
    double kept = 0;
    int bin = N_BINS - 1, n_in = 0, n_left = 0;
    uint32_t *ids = scratch->ids, *in_bin = scratch->ids + n;
    memset(scratch->bins, 0, N_BINS * sizeof *scratch->bins);
    for (int i = 0; i < n; i++) scratch->bins[bin_of(scratch->weights[ids[i]])] += (double)scratch->weights[ids[i]];
    while (bin > 0 && kept + scratch->bins[bin] < enough) kept += scratch->bins[bin--];
    for (int i = 0; i < n; i++)
        if (bin_of(scratch->weights[ids[i]]) == bin) in_bin[n_in++] = ids[i];
    if (n_in == 0) return n; /* summed in this order they do not quite reach it: all stay */
    top_select_sort(scratch->weights, in_bin, n_in);
    int last = 0;
    for (kept += (double)scratch->weights[in_bin[0]]; last + 1 < n_in && kept < enough; last++)
        kept += (double)scratch->weights[in_bin[last + 1]];
    uint32_t last_id = in_bin[last];
    float last_weight = scratch->weights[last_id];
    for (int i = 0; i < n; i++) {
        float weight = scratch->weights[ids[i]];
        if (weight > last_weight || (weight == last_weight && ids[i] <= last_id)) ids[n_left++] = ids[i];
    }
    return n_left;
}

/* The candidates that min_p and top_p leave. Few ids carry most of the weight: the light ones are looked at only if the
 * heavy ones do not suffice. */
static int collect_share(struct sampler_scratch *scratch, int n_vocab, const struct sampling *sampling) {
    double total = 0, heavy_total;
    int n = 0;
    if (sampling->min_p > 0) n = collect_heavy(scratch, n_vocab, sampling->min_p, &total);
    if (sampling->top_p >= 1) return n;
    if (sampling->min_p <= 0) {
        total = sum_weights(scratch, n_vocab);
        n = collect_heavy(scratch, n_vocab, HEAVY_WEIGHT, &heavy_total);
        if (heavy_total < (double)sampling->top_p * total) n = collect_heavy(scratch, n_vocab, 0, &heavy_total);
    }
    return cut_heaviest(scratch, n, (double)sampling->top_p * total);
}

uint32_t sampler_pick(const struct sampler *sampler, int worker_idx, const struct sampler_ask *ask) {
    struct sampler_scratch *scratch = &sampler->scratch[worker_idx];
    const struct sampling *sampling = ask->sampling;
    const float *logits = edit_logits(sampler, scratch, ask);
    uint32_t best = top_select_max(logits, sampler->n_vocab);
    if (logits != ask->logits && logits[best] == -INFINITY) return SAMPLER_NONE;
    /* an infinite or missing maximum leaves no weights to draw by */
    if (sampling->temperature < GREEDY_TEMPERATURE || sampling->top_k == 1 || !isfinite(logits[best])) return best;
    if (sampling->top_k && sampling->top_k < sampler->n_vocab) return pick_of_top_k(sampler, scratch, ask, logits);
    sampler->softmax_weights(logits, logits[best], sampling->temperature, scratch->weights, sampler->n_vocab);
    if (sampling->top_p >= 1 && sampling->min_p <= 0) {
        double total = sum_weights(scratch, sampler->n_vocab);
        return draw_any(sampler, scratch, draw(ask) * total, best);
    }
    int n = collect_share(scratch, sampler->n_vocab, sampling);
    return draw_candidate(scratch, scratch->ids, n, draw(ask));
}

/* ---- log-probabilities ---- */

void sampler_logprobs(const struct sampler *sampler, int worker_idx, const float *logits, uint32_t chosen, int n_top,
                      struct token_logprob *out) {
    struct sampler_scratch *scratch = &sampler->scratch[worker_idx];
    float max = logits[top_select_max(logits, sampler->n_vocab)];
    sampler->softmax_weights(logits, max, 1, scratch->weights, sampler->n_vocab);
    double log_total = log(sum_weights(scratch, sampler->n_vocab));
    int n = n_top ? top_select(logits, sampler->n_vocab, n_top, scratch->ids) : 0;
    for (int i = 0; i <= n_top; i++) {
        uint32_t id = i == 0 ? chosen : i <= n ? scratch->ids[i - 1] : SAMPLER_NONE;
        double logprob = id == SAMPLER_NONE ? (double)NAN : (double)logits[id] - (double)max - log_total;
        out[i] = (struct token_logprob){id, isnan(logprob) ? -INFINITY : (float)logprob};
    }
}
