#include "bench/simulate.h"

#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "base/mem.h"
#include "base/rng.h"
#include "sched/admission.h"
#include "sched/commit.h"

#define NEVER INT64_MAX
#define ANSWER_SEED 3

enum state { UNKNOWN_DUE, DUE, RUNNING, HOME };

struct item {
    enum state state;
    int64_t due_ns, cancel_ns;
    uint32_t *tokens; /* [n_prompt + n_output] while it runs, or as long as others continue it */
    bool is_needed;
};

struct simulation {
    const struct simulate_options *options;
    struct outcomes *outcomes;
    const struct trace *trace;
    double scale;
    const int64_t *solo_ns;
    int64_t now_ns;
    struct item *items;         /* [n_requests] */
    struct sequence *sequences; /* [max_sequences]; request_id: index of the request */
    struct kv_groups groups;
    bool has_groups;
    struct plan plan;
    struct plan_state state;
    struct admission admission;
    int n_before, n_home;
    double n_held_slots, n_unused_slots, n_reserved_slots, n_computed_slots; /* summed over steps */
};

static int64_t scaled_ns(const struct simulation *sim, double ms) {
    return (int64_t)(ms * 1e6 * sim->scale);
}

/* ---- a request's way ---- */

static void free_tokens(struct simulation *sim, int idx) {
    if (sim->items[idx].is_needed) return;
    mem_free(sim->items[idx].tokens);
    sim->items[idx].tokens = NULL;
}

static void come_home(struct simulation *sim, int idx, enum outcome_kind kind) {
    struct outcome *outcome = &sim->outcomes->of[idx];
    outcome->kind = kind;
    if (kind == OUTCOME_SKIPPED) outcome->arrival_ns = outcome->submitted_ns = sim->now_ns;
    outcome->finished_ns = sim->now_ns;
    sim->items[idx].state = HOME;
    sim->n_home++;
    for (int i = idx + 1; sim->items[idx].is_needed && i < sim->trace->n_requests; i++) {
        if (sim->trace->requests[i].after != idx) continue;
        sim->items[i].state = DUE;
        sim->items[i].due_ns = sim->now_ns + scaled_ns(sim, sim->trace->requests[i].arrival_ms);
        if (kind != OUTCOME_FINISHED) come_home(sim, i, OUTCOME_SKIPPED);
    }
    free_tokens(sim, idx);
}

static enum status make_tokens(struct simulation *sim, int idx) {
    const struct trace_request *asked = &sim->trace->requests[idx];
    struct item *item = &sim->items[idx];
    int n_before = asked->n_prompt - asked->n_own;
    item->tokens = mem_alloc_array((size_t)asked->n_prompt + (size_t)asked->n_output, sizeof *item->tokens);
    if (!item->tokens) return STATUS_NOMEM;
    if (n_before) memcpy(item->tokens, sim->items[asked->after].tokens, (size_t)n_before * sizeof *item->tokens);
    trace_own_tokens(sim->trace, idx, sim->options->n_vocab, item->tokens + n_before);
    return STATUS_OK;
}

static void set_deadline(const struct simulation *sim, int idx) {
    const struct trace_request *asked = &sim->trace->requests[idx];
    struct outcome *outcome = &sim->outcomes->of[idx];
    if (!asked->has_deadline) return;
    double solo_ns = sim->solo_ns ? (double)sim->solo_ns[idx] : 0;
    outcome->deadline_ns = outcome->arrival_ns + (int64_t)(asked->deadline_ms * 1e6 + asked->deadline_solo_x * solo_ns);
}

static void refuse(struct simulation *sim, int idx, const struct admission_answer *answer) {
    struct outcome *outcome = &sim->outcomes->of[idx];
    snprintf(outcome->note, sizeof outcome->note, "%s", admission_reason_text(answer->reason));
    outcome->refusal = answer->reason;
    outcome->retry_after_ns = answer->retry_after_ns;
    come_home(sim, idx, OUTCOME_REFUSED);
}

/* What it is told before any work, as the engine tells it. */
static struct admission_answer ask(struct simulation *sim, int idx, struct admission_candidate *out) {
    const struct trace_request *asked = &sim->trace->requests[idx];
    const struct outcome *outcome = &sim->outcomes->of[idx];
    struct prefix_tokens tokens = {sim->items[idx].tokens, NULL, asked->n_prompt - 1};
    struct kv_found found = {0};
    if (asked->n_prompt <= sim->options->max_context) kv_table_look(&sim->groups, NULL, tokens, &found);
    *out = (struct admission_candidate){
        .n_prompt = asked->n_prompt,
        .max_new = asked->n_output,
        .n_cached = found.n_tokens,
        .logits_from = asked->n_prompt,
        .terms = {.service_class = asked->class_ == REQUEST_BATCH ? TERMS_BATCH : TERMS_INTERACTIVE,
                  .tenant = admission_tenant(&sim->state, trace_tenant_id(asked),
                                             asked->tenant_weight ? asked->tenant_weight : 1),
                  .priority = asked->priority,
                  .n_cached = found.n_tokens,
                  .arrival_ns = sim->now_ns,
                  .deadline_ns = outcome->deadline_ns >= 0 ? outcome->deadline_ns : 0}};
    return admission_answer(&sim->admission, &sim->state, out, sim->now_ns);
}

static void start(struct simulation *sim, int idx, const struct terms *terms) {
    const struct trace_request *asked = &sim->trace->requests[idx];
    struct item *item = &sim->items[idx];
    struct sequence *sequence = sim->sequences;
    while (sequence->state != SEQ_FREE) sequence++;
    *sequence = (struct sequence){.state = SEQ_WAITING,
                                  .request_id = (uint64_t)idx,
                                  .tokens = item->tokens,
                                  .n_prompt = asked->n_prompt,
                                  .n_tokens = asked->n_prompt,
                                  .max_tokens = asked->n_prompt + asked->n_output,
                                  .logits_from = asked->n_prompt,
                                  .terms = *terms,
                                  .kv = sequence->kv};
    kv_table_start(&sequence->kv, NULL, true);
    sim->state.sequences[sim->state.n_sequences++] = sequence;
    item->state = RUNNING;
    if (asked->has_cancel) item->cancel_ns = item->due_ns + scaled_ns(sim, asked->cancel_ms);
}

static enum status arrive(struct simulation *sim, int idx) {
    struct outcome *outcome = &sim->outcomes->of[idx];
    struct admission_candidate candidate;
    /* What comes during a step is seen at its end. */
    outcome->arrival_ns = sim->items[idx].due_ns;
    outcome->submitted_ns = sim->now_ns;
    set_deadline(sim, idx);
    if (make_tokens(sim, idx)) return STATUS_NOMEM;
    struct admission_answer answer = ask(sim, idx, &candidate);
    if (answer.reason != ADMISSION_ADMITTED) {
        admission_refuse(&sim->admission, &sim->state, &candidate, &answer, sim->now_ns);
        refuse(sim, idx, &answer);
        return STATUS_OK;
    }
    outcome->predicted_ns = sim->now_ns - outcome->arrival_ns + answer.estimate_ns;
    struct terms terms = admission_accept(&sim->admission, &sim->state, &candidate, &answer, sim->now_ns);
    start(sim, idx, &terms);
    return STATUS_OK;
}

static void retire(struct simulation *sim, struct sequence *sequence, enum outcome_kind kind) {
    int idx = (int)sequence->request_id;
    sim->outcomes->of[idx].n_cached = sequence->n_cached_tokens;
    commit_retire(sequence, &sim->state);
    come_home(sim, idx, kind);
}

static void cancel(struct simulation *sim, int idx) {
    for (int i = 0; i < sim->state.n_sequences; i++)
        if (sim->state.sequences[i]->request_id == (uint64_t)idx) {
            retire(sim, sim->state.sequences[i], OUTCOME_CANCELLED);
            return;
        }
    BUG("request %d runs without a sequence", idx);
}

/* ---- a step ---- */

/* What has come by now; *out_next_ns: when the next thing will. */
static enum status take_due(struct simulation *sim, int64_t *out_next_ns) {
    enum status status = STATUS_OK;
    *out_next_ns = NEVER;
    while (sim->n_before < sim->trace->n_requests && sim->items[sim->n_before].state == HOME) sim->n_before++;
    for (int i = sim->n_before; i < sim->trace->n_requests && !status; i++) {
        struct item *item = &sim->items[i];
        if (item->state == DUE && item->due_ns <= sim->now_ns) status = arrive(sim, i);
        if (item->state == RUNNING && item->cancel_ns <= sim->now_ns) cancel(sim, i);
        int64_t next_ns = item->state == DUE ? item->due_ns : item->state == RUNNING ? item->cancel_ns : NEVER;
        if (next_ns < *out_next_ns) *out_next_ns = next_ns;
    }
    return status;
}

static void count_slots(struct simulation *sim) {
    double computed = 0, reserved = 0, held = (double)sim->groups.groups[0].pool.n_held * sim->options->block_tokens;
    for (int i = 0; i < sim->state.n_sequences; i++) {
        const struct sequence *sequence = sim->state.sequences[i];
        if (sequence->state != SEQ_RUNNING) continue;
        computed += sequence->n_computed;
        reserved += sim->options->max_context;
    }
    sim->n_held_slots += held;
    sim->n_unused_slots += held > computed ? held - computed : 0; /* shared slots are computed for several */
    sim->n_computed_slots += computed;
    sim->n_reserved_slots += reserved;
}

static void commit_item(struct simulation *sim, const struct plan_item *item) {
    struct sequence *sequence = item->sequence;
    int idx = (int)sequence->request_id;
    struct outcome *outcome = &sim->outcomes->of[idx];
    commit_rows(item);
    if (item->is_sampled) {
        double random = rng_uniform(ANSWER_SEED, (uint32_t)idx, (uint32_t)sequence->n_tokens);
        commit_token(item, (uint32_t)(random * sim->options->n_vocab));
        outcome->token_ns[outcome->n_tokens++] = sim->now_ns;
        if (sequence->n_tokens == sequence->max_tokens) retire(sim, sequence, OUTCOME_FINISHED);
    } else if (sequence->n_computed == sequence->max_tokens) {
        retire(sim, sequence, OUTCOME_FINISHED);
    }
}

/* There are no bytes to copy. */
static void end_copies(struct simulation *sim) {
    for (int i = 0; i < sim->state.n_sequences; i++)
        if (sim->state.sequences[i]->kv.has_copy) kv_table_end_copy(&sim->state.sequences[i]->kv);
}

/* A long step of batch work ends where an interactive request comes, and nothing of it is kept. */
static bool is_abandoned(struct simulation *sim) {
    int64_t end_ns = sim->now_ns + sim->plan.predicted_ns + sim->options->step_overhead_ns, come_ns = NEVER;
    if (sim->state.urgency != STEP_RELAXED) return false;
    for (int i = sim->n_before; i < sim->trace->n_requests; i++) {
        const struct item *item = &sim->items[i];
        bool is_interactive = sim->trace->requests[i].class_ != REQUEST_BATCH;
        if (item->state == DUE && is_interactive && item->due_ns < come_ns) come_ns = item->due_ns;
    }
    if (come_ns >= end_ns) return false;
    if (come_ns > sim->now_ns) sim->now_ns = come_ns;
    return true;
}

static void run_step(struct simulation *sim) {
    if (is_abandoned(sim)) return;
    sim->now_ns += sim->plan.predicted_ns + sim->options->step_overhead_ns;
    for (int i = 0; i < sim->plan.n_items; i++) {
        const struct plan_item item = sim->plan.items[i];
        commit_item(sim, &item);
    }
    count_slots(sim);
    sim->outcomes->totals.n_steps++;
}

static enum status run(struct simulation *sim, struct status_note *note) {
    int64_t next_ns;
    while (sim->n_home < sim->trace->n_requests) {
        enum status status = take_due(sim, &next_ns);
        if (status) return status_fail(note, status, "no memory for a request's tokens");
        plan_make(&sim->plan, &sim->state, sim->now_ns);
        end_copies(sim);
        if (sim->plan.n_items) {
            run_step(sim);
            continue;
        }
        if (next_ns == NEVER && sim->n_home < sim->trace->n_requests)
            return status_fail(note, STATUS_LIMIT, "the scheduler stops with %d requests left",
                               sim->trace->n_requests - sim->n_home);
        if (next_ns != NEVER) sim->now_ns = next_ns;
    }
    return STATUS_OK;
}

/* ---- start and end ---- */

static enum status prepare_items(struct simulation *sim) {
    const struct trace *trace = sim->trace;
    sim->items = mem_alloc_array((size_t)trace->n_requests, sizeof *sim->items);
    if (!sim->items) return STATUS_NOMEM;
    for (int i = 0; i < trace->n_requests; i++) {
        int after = trace->requests[i].after;
        sim->items[i] = (struct item){after >= 0 ? UNKNOWN_DUE : DUE, scaled_ns(sim, trace->requests[i].arrival_ms),
                                      NEVER, NULL, false};
        if (after >= 0) sim->items[after].is_needed = true;
    }
    return STATUS_OK;
}

static enum status prepare(struct simulation *sim) {
    const struct simulate_options *options = sim->options;
    size_t n = (size_t)options->max_sequences;
    struct kv_groups_options sizes = {.n_groups = 1,
                                      .block_tokens = options->block_tokens,
                                      .tile_tokens = options->block_tokens,
                                      .n_blocks = {(options->kv_tokens - 1) / options->block_tokens + 1},
                                      .has_index = options->has_prefix_cache,
                                      .identity = "sim",
                                      .n_identity = 3,
                                      .hash = hash_sha256};
    struct admission_limits limits = options->admission;
    limits.max_context = options->max_context;
    enum status status = prepare_items(sim);
    if (!status) status = admission_init(&sim->admission, &limits, options->max_sequences);
    if (!status) status = kv_groups_init(&sim->groups, &sizes);
    if (status) return status;
    sim->has_groups = true;
    sim->sequences = mem_alloc_array(n, sizeof *sim->sequences);
    sim->state = (struct plan_state){.limits = {.max_sequences = options->max_sequences,
                                                .max_rows = options->max_chunk + options->max_sequences,
                                                .max_logit_rows = options->max_sequences,
                                                .max_prefill_rows = options->max_chunk,
                                                .step = options->step},
                                     .sequences = mem_alloc_array(n, sizeof *sim->state.sequences),
                                     .groups = &sim->groups,
                                     .cost = options->cost};
    policy_init(&sim->state.policy, options->policy);
    if (!sim->sequences || !sim->state.sequences) return STATUS_NOMEM;
    for (size_t i = 0; i < n; i++)
        if (kv_table_init(&sim->sequences[i].kv, &sim->groups, options->max_context)) return STATUS_NOMEM;
    return plan_init(&sim->plan, &sim->state.limits);
}

static void end_table(struct simulation *sim, struct sequence *sequence) {
    if (sequence->state != SEQ_FREE) commit_retire(sequence, &sim->state); /* an error ended the run */
    kv_table_deinit(&sequence->kv);
}

static void clean_up(struct simulation *sim) {
    for (int i = 0; sim->items && i < sim->trace->n_requests; i++) mem_free(sim->items[i].tokens);
    mem_free(sim->items);
    for (int i = 0; sim->sequences && i < sim->options->max_sequences; i++) end_table(sim, &sim->sequences[i]);
    mem_free(sim->sequences);
    mem_free(sim->state.sequences);
    admission_deinit(&sim->admission);
    plan_deinit(&sim->plan);
    if (sim->has_groups) kv_groups_deinit(&sim->groups);
}

enum status simulate_run(const struct simulate_options *options, double scale, const int64_t *solo_ns,
                         struct outcomes *outcomes, struct status_note *note) {
    struct simulation sim = {
        .options = options, .outcomes = outcomes, .trace = outcomes->trace, .scale = scale, .solo_ns = solo_ns};
    struct outcomes_totals *totals = &outcomes->totals;
    totals->n_steps = 0;
    enum status status = prepare(&sim);
    if (status)
        status_fail(note, status, "no memory to simulate %d requests", outcomes->trace->n_requests);
    else
        status = run(&sim, note);
    totals->wall_ms = (double)sim.now_ns / 1e6;
    totals->n_preemptions = sim.state.n_preempted;
    if (sim.n_held_slots > 0) {
        totals->kv_waste_share = sim.n_unused_slots / sim.n_held_slots;
        totals->kv_contiguous_waste_share = 1 - sim.n_computed_slots / sim.n_reserved_slots;
    }
    clean_up(&sim);
    return status;
}
