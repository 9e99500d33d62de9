#include "engine/step_history.h"

#include "base/status.h"

static void add_other(struct step_record *record, const struct step_part *part) {
    record->n_others++;
    record->n_other_rows += part->n_rows;
}

void step_history_add_part(struct step_record *record, uint64_t request_id, int n_rows, int from) {
    struct step_part part = {request_id, n_rows, from};
    record->n_prefill_rows += n_rows;
    for (int i = 0; i < record->n_parts; i++) {
        if (record->parts[i].n_rows >= part.n_rows) continue;
        struct step_part smaller = record->parts[i];
        record->parts[i] = part;
        part = smaller;
    }
    if (record->n_parts < STEP_HISTORY_MAX_PARTS)
        record->parts[record->n_parts++] = part;
    else
        add_other(record, &part);
}

void step_history_push(struct step_history *history, struct step_record *record) {
    int64_t n_steps = atomic_load_explicit(&history->n_steps, memory_order_relaxed);
    record->number = n_steps + 1;
    REQUIRE(record->end_ns >= record->start_ns);
    seqlock_write(&history->slots[n_steps % STEP_HISTORY_MAX].lock, history->slots[n_steps % STEP_HISTORY_MAX].words,
                  record, sizeof *record);
    atomic_store_explicit(&history->n_steps, n_steps + 1, memory_order_release);
}

int64_t step_history_last(const struct step_history *history) {
    return atomic_load_explicit(&history->n_steps, memory_order_acquire);
}

bool step_history_read(const struct step_history *history, int64_t number, struct step_record *out_record) {
    int64_t last = step_history_last(history);
    if (number < 1 || number > last || last - number >= STEP_HISTORY_MAX) return false;
    int64_t slot = (number - 1) % STEP_HISTORY_MAX;
    seqlock_read(&history->slots[slot].lock, history->slots[slot].words, out_record, sizeof *out_record);
    return out_record->number == number;
}
