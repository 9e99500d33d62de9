/* diagnosis_window: the last minute of a server beside a longer time in which nothing was wrong.
 *
 * Time is cut into buckets. The last n_recent are the recent ones; what leaves them becomes baseline, unless it was ill
 * (a rule fired), so that a trouble that lasts does not become what it is compared with, or nothing ended in it. Each
 * bucket holds sums of all its requests and up to DIAGNOSIS_WINDOW_MAX_KEPT of them, drawn evenly, for quantiles.
 * Thread: io.   Memory: a plain value of about half a megabyte. Time is an argument, and never goes back. */
#ifndef KVICK_OBSERVE_DIAGNOSIS_WINDOW_H
#define KVICK_OBSERVE_DIAGNOSIS_WINDOW_H

#include "observe/diagnosis_record.h"

#define DIAGNOSIS_WINDOW_MAX_KEPT 64
#define DIAGNOSIS_WINDOW_MAX_RECENT 12
#define DIAGNOSIS_WINDOW_MAX_BASELINE 60
#define DIAGNOSIS_WINDOW_MAX_KEYS 64 /* told apart at a time; the last one stands for all others */
#define DIAGNOSIS_WINDOW_KEY_BYTES 64

struct diagnosis_window_options {
    int64_t bucket_ns;
    int n_recent, n_baseline; /* buckets */
    int n_ill; /* buckets in a row that are kept out of the baseline for being ill; then they are the rule here */
    int64_t slo_ttft_ns[REQUEST_N_CLASSES]; /* 0: nothing is promised */
};

/* All of them double, so that adding is a loop. */
struct diagnosis_sums {
    double n_run, n_refused_by[ADMISSION_N_REASONS];
    double ttft_ms, part_ms[N_PHASES]; /* parts: those of TTFT alone */
    double n_prompt_tokens, n_cached_tokens, n_computed_tokens, n_output_tokens;
    double prefill_own_ms, decode_ms, blocked_ms; /* whole */
    double n_blocked; /* requests whose client did not read for DIAGNOSIS_WINDOW_BLOCKED_MS */
    double n_promised, n_late, n_promised_slo, n_missed_slo;
    double key_tokens[DIAGNOSIS_WINDOW_MAX_KEYS], key_requests[DIAGNOSIS_WINDOW_MAX_KEYS]; /* computed tokens */
    /* Of the engine. */
    double n_samples, running, waiting, held_share; /* sums of samples */
    double n_tight, free_tokens;                    /* those in which somebody waited; what was not held then */
    double n_preempted, n_misses[ENGINE_STATS_N_MISSES], n_rows, n_prefill_rows, n_steps, steps_ms;
};

#define DIAGNOSIS_WINDOW_BLOCKED_MS 100

/* What quantiles are asked of. */
enum diagnosis_quantity {
    DIAGNOSIS_TTFT,
    DIAGNOSIS_ITL, /* of answers with several tokens: time that it decoded, by token */
    DIAGNOSIS_READ,
    DIAGNOSIS_PREPROCESS,
    DIAGNOSIS_TEXT,   /* text_queue, template, tokenize */
    DIAGNOSIS_WAIT,   /* queue, prefill_lost: for the sake of others */
    DIAGNOSIS_PROMPT, /* tokens */
    DIAGNOSIS_COMPUTED,
    DIAGNOSIS_CONTEXT, /* prompt and answer */
    DIAGNOSIS_HIT,     /* of its prompt in the prefix cache, from 0 to 1 */
    DIAGNOSIS_N_QUANTITIES
};

struct diagnosis_kept {
    float of[DIAGNOSIS_N_QUANTITIES]; /* negative: it has none */
    int key;
};

struct diagnosis_bucket {
    struct diagnosis_sums sums;
    struct diagnosis_kept kept[DIAGNOSIS_WINDOW_MAX_KEPT];
    int n_seen; /* of which kept were drawn */
    bool is_ill;
};

/* Buckets in a row, with the newest at last. */
struct diagnosis_span {
    struct diagnosis_bucket *buckets; /* [max] a ring */
    int max, first, n;
};

struct diagnosis_window {
    struct diagnosis_window_options options;
    struct diagnosis_bucket open; /* where what comes now is noted */
    int64_t open_ns;              /* its start; 0: nothing has been noted yet */
    struct diagnosis_span recent, baseline;
    struct diagnosis_bucket recent_buckets[DIAGNOSIS_WINDOW_MAX_RECENT];
    struct diagnosis_bucket baseline_buckets[DIAGNOSIS_WINDOW_MAX_BASELINE];
    char key_names[DIAGNOSIS_WINDOW_MAX_KEYS][DIAGNOSIS_WINDOW_KEY_BYTES]; /* "": no key */
    int n_keys;
    uint64_t n_drawn;         /* counter of the draws */
    int n_ill;                /* buckets in a row */
    struct engine_stats last; /* the sample before */
    bool has_last;
    float scratch[DIAGNOSIS_WINDOW_MAX_BASELINE * DIAGNOSIS_WINDOW_MAX_KEPT];
};

void diagnosis_window_init(struct diagnosis_window *window, const struct diagnosis_window_options *options);

void diagnosis_window_note(struct diagnosis_window *window, const struct diagnosis_record *record);
void diagnosis_window_sample(struct diagnosis_window *window, const struct engine_stats *stats);

/* Whether the open bucket's time is over; the first call opens one. */
bool diagnosis_window_is_full(struct diagnosis_window *window, int64_t now_ns);

/* The open bucket becomes the newest recent one. Buckets of a pause stay empty. */
void diagnosis_window_close(struct diagnosis_window *window, int64_t now_ns);

/* The newest recent bucket was ill. */
void diagnosis_window_mark_ill(struct diagnosis_window *window);

struct diagnosis_sums diagnosis_window_sums(const struct diagnosis_span *span);

/* The q-quantile among the requests kept in span that have the quantity, of those with a prompt shorter than max_prompt
 * (0: any). 0 if there are none. out_n: NULL, or how many there were.   Cost: O(kept). */
double diagnosis_window_quantile(struct diagnosis_window *window, const struct diagnosis_span *span,
                                 enum diagnosis_quantity quantity, double q, int max_prompt, int *out_n);

/* Prompts of at least min_prompt tokens among the kept. */
struct diagnosis_long {
    double request_share, token_share; /* of all requests; of all computed tokens */
    int key;                           /* that has most of their tokens */
};
struct diagnosis_long diagnosis_window_long(const struct diagnosis_span *span, int min_prompt);

#endif
