/* sequence: what the scheduler knows of one request: tokens, blocks and how far it is computed. No text, no model.
 *
 * tokens[0, n_prompt) came with the request, [n_prompt, n_tokens) were sampled.
 * KV: [0, n_computed) is in the blocks of kv.
 * Thread: engine.   Memory: block tables sized at init; tokens belong to the request. */
#ifndef KVICK_SCHED_SEQUENCE_H
#define KVICK_SCHED_SEQUENCE_H

#include <stdbool.h>
#include <stdint.h>

#include "kvcache/kv_table.h"
#include "sched/terms.h"

enum sequence_state {
    SEQ_FREE,    /* the slot is unused */
    SEQ_WAITING, /* has no blocks, yet or any more */
    SEQ_RUNNING
};

struct sequence {
    enum sequence_state state;
    uint64_t request_id;
    uint32_t *tokens; /* [max_tokens] */
    int n_prompt, n_tokens, max_tokens;
    int n_computed;
    int logits_from; /* prompt rows at and after this position are wanted as logits; n_prompt if none */
    int n_hidden;    /* so many rows at the prompt's end are wanted as hidden states */
    bool is_cancelled;
    bool is_paused; /* its client does not read: it gets no row until it does */
    struct kv_table kv;
    int n_done;          /* positions below it have been computed, or found, once: rows below it are computed again */
    int n_preempted;     /* times it lost its blocks; while it waits after that it has no time of its own */
    int n_cached_tokens; /* found, computed by others */
    struct terms terms;
    uint64_t last_decode_step; /* number of the step that planned its last decode row */
    int n_bypassed;            /* sequences that started while this one waited for blocks */
};

/* Positions that will be computed in all: the last token sampled is never run. */
int sequence_max_computed(const struct sequence *sequence);

/* Tokens known but not computed. */
int sequence_n_pending(const struct sequence *sequence);

/* Positions whose KV may come from others: at least one known token is run, and all rows that are wanted. */
int sequence_n_reusable(const struct sequence *sequence);

bool sequence_is_decoding(const struct sequence *sequence);

#endif
