#include "engine/step_probe.h"

#include "base/clock.h"
#include "base/mem.h"

static int n_blocks_for(const struct step_probe *probe, int n_tokens) {
    return (n_tokens + probe->state->block_tokens - 1) / probe->state->block_tokens;
}

/* The sequence as if n_computed tokens were done and to be the last one known. */
static void set_sequence(struct step_probe *probe, struct sequence *sequence, int n_computed, int to) {
    sequence->state = SEQ_RUNNING;
    sequence->tokens = probe->tokens;
    sequence->n_prompt = sequence->n_tokens = sequence->max_tokens = to;
    sequence->n_computed = n_computed;
    int n_missing = n_blocks_for(probe, to) - sequence->n_blocks;
    if (n_missing <= 0) return;
    enum status status = block_pool_take(probe->state->pool, n_missing, sequence->blocks + sequence->n_blocks);
    if (status) BUG("a pool that nobody uses has no %d blocks", n_missing);
    sequence->n_blocks += n_missing;
}

static void release(struct step_probe *probe, int n_sequences) {
    for (int i = 0; i < n_sequences; i++) {
        sequence_release_blocks(&probe->sequences[i], probe->state->pool);
        probe->sequences[i].state = SEQ_FREE;
    }
}

static int64_t run_step(struct step_probe *probe, int n_sequences, int from, int to, int n_logit_rows) {
    struct plan *plan = probe->plan;
    plan->n_items = plan->n_rows = plan->n_logit_rows = plan->n_copies = plan->n_decode_rows = 0;
    for (int i = 0; i < n_sequences; i++) {
        struct sequence *sequence = &probe->sequences[i];
        int n_mine = n_sequences == 1 ? n_logit_rows : 1;
        set_sequence(probe, sequence, from, to);
        sequence->logits_from = to - n_mine;
        plan_add(plan, sequence, from, to);
    }
    int64_t start_ns = clock_now_ns();
    struct model_batch batch = step_batch_build(probe->batch, plan, probe->state->block_tokens);
    if (!forward_run(probe->forward, &batch, probe->logits)) BUG("a step that nobody can cancel was abandoned");
    return clock_now_ns() - start_ns;
}

/* K and V before a far probe are really computed: memory that was never written is cheaper to read. */
static void fill(struct step_probe *probe, int n_tokens) {
    int max_rows = probe->state->limits.max_rows;
    while (probe->n_filled < n_tokens) {
        int to = n_tokens - probe->n_filled < max_rows ? n_tokens : probe->n_filled + max_rows;
        run_step(probe, 1, probe->n_filled, to, 1);
        probe->n_filled = to;
    }
}

static int64_t run_probe(void *arg, const struct cost_model_probe *asked) {
    struct step_probe *probe = arg;
    fill(probe, asked->pos);
    return run_step(probe, asked->n_sequences, asked->pos, asked->pos + asked->n_rows, asked->n_logit_rows);
}

enum status step_probe_measure(struct step_probe *probe, struct cost_model *model, int64_t budget_ns) {
    const struct plan_limits *limits = &probe->state->limits;
    int pool_tokens = block_pool_n_available(probe->state->pool) * probe->state->block_tokens;
    int max_pos = (pool_tokens < probe->max_context ? pool_tokens : probe->max_context) - 1;
    struct cost_model_limits may = {.max_rows = limits->max_rows < max_pos + 1 ? limits->max_rows : max_pos + 1,
                                    .max_pos = max_pos,
                                    .max_sequences = limits->max_sequences,
                                    .max_logit_rows = limits->max_logit_rows,
                                    .budget_ns = budget_ns};
    /* Each sequence of a probe with several needs a block beside those of the first. */
    int n_spare = (pool_tokens - max_pos - 1) / probe->state->block_tokens;
    if (may.max_sequences > n_spare + 1) may.max_sequences = n_spare + 1;
    probe->n_filled = 0;
    probe->tokens = mem_alloc_array((size_t)probe->max_context, sizeof *probe->tokens);
    if (!probe->tokens) return STATUS_NOMEM;
    cost_model_measure(model, &may, run_probe, probe);
    release(probe, limits->max_sequences);
    mem_free(probe->tokens);
    probe->tokens = NULL;
    return STATUS_OK;
}
