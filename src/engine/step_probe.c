#include "engine/step_probe.h"

#include "base/clock.h"
#include "base/mem.h"

/* The sequence as if [0, from) were computed and to were the last that is known. */
static void set_sequence(struct step_probe *probe, struct sequence *sequence, int from, int to) {
    sequence->state = SEQ_RUNNING;
    sequence->tokens = probe->tokens;
    sequence->n_prompt = sequence->n_tokens = sequence->max_tokens = to;
    sequence->n_computed = from;
    kv_table_trim(&sequence->kv, from);
    if (kv_table_grow(&sequence->kv, to)) BUG("pools that nobody uses do not hold %d tokens", to);
}

static void start_tables(struct step_probe *probe) {
    for (int i = 0; i < probe->state->limits.max_sequences; i++) kv_table_start(&probe->sequences[i].kv, NULL, false);
}

static void release_tables(struct step_probe *probe) {
    for (int i = 0; i < probe->state->limits.max_sequences; i++) {
        kv_table_release(&probe->sequences[i].kv);
        probe->sequences[i].state = SEQ_FREE;
    }
}

static int64_t run_step(struct step_probe *probe, int n_sequences, int from, int to, int n_logit_rows) {
    struct plan *plan = probe->plan;
    plan->n_items = plan->n_rows = plan->n_logit_rows = plan->n_decode_rows = 0;
    for (int i = 0; i < n_sequences; i++) {
        struct sequence *sequence = &probe->sequences[i];
        set_sequence(probe, sequence, from, to);
        sequence->logits_from = to - (n_sequences == 1 ? n_logit_rows : 1);
        plan_add(plan, sequence, from, to);
    }
    const float *logits;
    int64_t start_ns = clock_now_ns();
    struct model_batch batch = step_batch_build(probe->batch, plan, probe->state->groups);
    if (!forward_run(probe->forward, &batch, &logits)) BUG("a step that nobody can cancel was abandoned");
    return clock_now_ns() - start_ns;
}

/* K and V before a far probe are really computed: memory that was never written is cheaper to read. */
static void fill(struct step_probe *probe, int n_tokens) {
    int max_rows = probe->state->limits.max_prefill_rows;
    if (n_tokens > 0 && probe->n_filled == 0) {
        release_tables(probe);
        start_tables(probe);
    }
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

static int smaller(int a, int b) {
    return a < b ? a : b;
}

enum status step_probe_measure(struct step_probe *probe, struct cost_model *model, int64_t budget_ns) {
    const struct plan_limits *limits = &probe->state->limits;
    const struct kv_groups *groups = probe->state->groups;
    int block_tokens = groups->block_tokens, n_blocks = INT32_MAX / block_tokens;
    /* Windowed groups hold a chunk behind a window, the first all: what fits the smallest fits everywhere. */
    for (int g = 0; g < groups->n_groups; g++)
        n_blocks = smaller(n_blocks, block_pool_n_available(&groups->groups[g].pool));
    int max_tokens = smaller(n_blocks * block_tokens, probe->max_context);
    /* The first sequence keeps its blocks beside the others' one each. */
    int n_spare = n_blocks - (smaller(limits->max_prefill_rows, max_tokens) + block_tokens - 1) / block_tokens;
    struct cost_model_limits may = {.max_rows = smaller(limits->max_prefill_rows, max_tokens),
                                    .max_pos = max_tokens - 1,
                                    .max_sequences = smaller(limits->max_sequences, n_spare + 1),
                                    .max_logit_rows = limits->max_logit_rows,
                                    .budget_ns = budget_ns};
    probe->n_filled = 0;
    probe->tokens = mem_alloc_array((size_t)probe->max_context, sizeof *probe->tokens);
    if (!probe->tokens) return STATUS_NOMEM;
    start_tables(probe);
    cost_model_measure(model, &may, run_probe, probe);
    release_tables(probe);
    mem_free(probe->tokens);
    probe->tokens = NULL;
    return STATUS_OK;
}
