#include "engine/step_batch.h"

#include "base/mem.h"

enum status step_batch_init(struct step_batch *step, const struct plan_limits *limits, int n_groups) {
    size_t n = (size_t)limits->max_rows;
    *step = (struct step_batch){.tokens = mem_alloc_array(n, sizeof *step->tokens),
                                .positions = mem_alloc_array(n, sizeof *step->positions),
                                .logit_rows = mem_alloc_array(n, sizeof *step->logit_rows),
                                .hidden_rows = mem_alloc_array(n, sizeof *step->hidden_rows),
                                .sequences = mem_alloc_array((size_t)limits->max_sequences, sizeof *step->sequences)};
    bool has_slots = true;
    for (int g = 0; g < n_groups; g++) {
        step->slots[g] = mem_alloc_array(n, sizeof *step->slots[g]);
        has_slots &= step->slots[g] != NULL;
    }
    if (step->tokens && has_slots && step->positions && step->logit_rows && step->hidden_rows && step->sequences)
        return STATUS_OK;
    step_batch_deinit(step);
    return STATUS_NOMEM;
}

void step_batch_deinit(struct step_batch *step) {
    mem_free(step->tokens);
    for (int g = 0; g < KV_LAYERS_MAX_GROUPS; g++) mem_free(step->slots[g]);
    mem_free(step->positions);
    mem_free(step->logit_rows);
    mem_free(step->hidden_rows);
    mem_free(step->sequences);
    *step = (struct step_batch){0};
}

/* Where the K and V of an item's rows go, in every group. */
static void lay_out_slots(struct step_batch *step, const struct plan_item *item, const struct kv_groups *groups,
                          int row_begin) {
    int block_tokens = groups->block_tokens;
    for (int g = 0; g < groups->n_groups; g++) {
        const block_id *blocks = item->sequence->kv.blocks[g];
        uint32_t *slots = step->slots[g] + row_begin - item->from;
        for (int pos = item->from; pos < item->to; pos++)
            slots[pos] = blocks[pos / block_tokens] * (uint32_t)block_tokens + (uint32_t)(pos % block_tokens);
    }
}

struct model_batch step_batch_build(struct step_batch *step, const struct plan *plan, const struct kv_groups *groups) {
    int row = 0, n_logit_rows = 0, n_hidden_rows = 0;
    for (int i = 0; i < plan->n_items; i++) {
        const struct plan_item *item = &plan->items[i];
        const struct sequence *sequence = item->sequence;
        struct batch_sequence *laid_out = &step->sequences[i];
        *laid_out = (struct batch_sequence){.row_begin = row, .n_rows = item->to - item->from, .first_pos = item->from};
        int hidden_from = sequence->n_prompt - sequence->n_hidden;
        if (hidden_from < sequence->n_done) hidden_from = sequence->n_done; /* made before it was preempted */
        for (int g = 0; g < groups->n_groups; g++) laid_out->blocks[g] = sequence->kv.blocks[g];
        lay_out_slots(step, item, groups, row);
        for (int pos = item->from; pos < item->to; pos++, row++) {
            step->tokens[row] = sequence->tokens[pos];
            step->positions[row] = pos;
            if (pos >= item->logits_from) step->logit_rows[n_logit_rows++] = row;
            if (pos >= hidden_from && pos < sequence->n_prompt) step->hidden_rows[n_hidden_rows++] = row;
        }
    }
    struct model_batch batch = {.n_rows = row,
                                .tokens = step->tokens,
                                .positions = step->positions,
                                .n_sequences = plan->n_items,
                                .sequences = step->sequences,
                                .n_logit_rows = n_logit_rows,
                                .logit_rows = step->logit_rows,
                                .n_hidden_rows = n_hidden_rows,
                                .hidden_rows = step->hidden_rows};
    for (int g = 0; g < groups->n_groups; g++) batch.slots[g] = step->slots[g];
    return batch;
}
