/* step_history: the last steps of an engine, for those who watch: when, how many rows, whose prompts, what they cost.
 *
 * A record is written once and stays until STEP_HISTORY_MAX younger ones have come. Ids and numbers only, never a
 * token.   Thread: engine writes, any reads.   Memory: part of its owner. */
#ifndef KVICK_ENGINE_STEP_HISTORY_H
#define KVICK_ENGINE_STEP_HISTORY_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/seqlock.h"
#include "engine/phase_stats.h"

#define STEP_HISTORY_MAX 4096
#define STEP_HISTORY_MAX_PARTS 4

/* Rows of one request's prompt. */
struct step_part {
    uint64_t request_id; /* struct request */
    int32_t n_rows, from;
};

struct step_record {
    int64_t number; /* from 1 on, without gaps */
    int64_t start_ns, end_ns;
    int64_t decode_ns; /* of that span, what the decode rows alone would have taken, by the cost model */
    int32_t n_prefill_rows, n_decode_rows;
    bool is_abandoned; /* nobody wanted its results any more */
    int32_t n_parts;
    struct step_part parts[STEP_HISTORY_MAX_PARTS]; /* those with most rows, the largest first */
    int32_t n_others, n_other_rows;                 /* prompts beside them */
    struct phase_work prefill, decode;              /* zero where it was abandoned */
};

struct step_history {
    _Atomic int64_t n_steps; /* written so far; release: the record is there */
    struct {
        struct seqlock lock;
        _Atomic uint64_t words[SEQLOCK_WORDS(struct step_record)];
    } slots[STEP_HISTORY_MAX];
};

/* A prompt's rows go to parts, if they are among the largest, else to the others. */
void step_history_add_part(struct step_record *record, uint64_t request_id, int n_rows, int from);

/* Sets the record's number and makes it readable. */
void step_history_push(struct step_history *history, struct step_record *record);

/* The number of the last step; 0: there was none. */
int64_t step_history_last(const struct step_history *history);

/* False: no such step, or younger ones have taken its place. */
bool step_history_read(const struct step_history *history, int64_t number, struct step_record *out_record);

#endif
