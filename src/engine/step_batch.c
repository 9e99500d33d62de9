#include "engine/step_batch.h"

#include "base/mem.h"

enum status step_batch_init(struct step_batch *step, const struct plan_limits *limits) {
    size_t n = (size_t)limits->max_rows;
    *step = (struct step_batch){.tokens = mem_alloc_array(n, sizeof *step->tokens),
                                .slots = mem_alloc_array(n, sizeof *step->slots),
                                .positions = mem_alloc_array(n, sizeof *step->positions),
                                .logit_rows = mem_alloc_array(n, sizeof *step->logit_rows),
                                .hidden_rows = mem_alloc_array(n, sizeof *step->hidden_rows),
                                .sequences = mem_alloc_array((size_t)limits->max_sequences, sizeof *step->sequences)};
    if (step->tokens && step->slots && step->positions && step->logit_rows && step->hidden_rows && step->sequences)
        return STATUS_OK;
    step_batch_deinit(step);
    return STATUS_NOMEM;
}

void step_batch_deinit(struct step_batch *step) {
    mem_free(step->tokens);
    mem_free(step->slots);
    mem_free(step->positions);
    mem_free(step->logit_rows);
    mem_free(step->hidden_rows);
    mem_free(step->sequences);
    *step = (struct step_batch){0};
}

struct model_batch step_batch_build(struct step_batch *step, const struct plan *plan, int block_tokens) {
    int row = 0, n_logit_rows = 0, n_hidden_rows = 0;
    for (int i = 0; i < plan->n_items; i++) {
        const struct plan_item *item = &plan->items[i];
        const struct sequence *sequence = item->sequence;
        int hidden_from = sequence->n_prompt - sequence->n_hidden;
        step->sequences[i] = (struct batch_sequence){row, item->to - item->from, item->from, {sequence->blocks}};
        for (int pos = item->from; pos < item->to; pos++, row++) {
            step->tokens[row] = sequence->tokens[pos];
            step->positions[row] = pos;
            step->slots[row] =
                sequence->blocks[pos / block_tokens] * (uint32_t)block_tokens + (uint32_t)(pos % block_tokens);
            if (pos >= item->logits_from) step->logit_rows[n_logit_rows++] = row;
            if (pos >= hidden_from && pos < sequence->n_prompt) step->hidden_rows[n_hidden_rows++] = row;
        }
    }
    return (struct model_batch){.n_rows = row,
                                .tokens = step->tokens,
                                .positions = step->positions,
                                .slots = {step->slots},
                                .n_sequences = plan->n_items,
                                .sequences = step->sequences,
                                .n_logit_rows = n_logit_rows,
                                .logit_rows = step->logit_rows,
                                .n_hidden_rows = n_hidden_rows,
                                .hidden_rows = step->hidden_rows};
}
