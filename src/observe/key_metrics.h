/* key_metrics: what the requests of each key cost, told for the keys that cost most and in one sum for all others.
 *
 * KEY_METRICS_N_SHOWN keys have a place; others are watched, as well as KEY_METRICS_N_WATCHED places allow, and one
 * that has come to cost more than the least of the shown ones takes its place. So what is written is bounded, and every
 * request counts in exactly one series: a key's begins at 0 when it gets a place, what came before stays with the
 * others. How much it costs is counted in tokens of late: all are halved every KEY_METRICS_HALVING_TOKENS.
 * Thread: io.   Memory: a plain value. */
#ifndef KVICK_OBSERVE_KEY_METRICS_H
#define KVICK_OBSERVE_KEY_METRICS_H

#include <stdint.h>

#include "observe/prom_text.h"

#define KEY_METRICS_N_SHOWN 20
#define KEY_METRICS_N_WATCHED 40
#define KEY_METRICS_MAX_NAME_BYTES 64
#define KEY_METRICS_HALVING_TOKENS 1000000

struct key_counts {
    double n_requests, n_prefill_tokens, n_output_tokens;
};

struct key_place {
    char name[KEY_METRICS_MAX_NAME_BYTES];
    double recent_tokens;
    double inherited_tokens;  /* of them, those that may be of whom it followed in its place */
    struct key_counts counts; /* since it is shown */
};

struct key_metrics {
    struct key_place shown[KEY_METRICS_N_SHOWN], watched[KEY_METRICS_N_WATCHED];
    int n_shown, n_watched;
    struct key_counts others;
    double recent_tokens; /* of all since the last halving */
};

/* A request of the key is home. name: NULL or "": it has none. */
void key_metrics_count(struct key_metrics *metrics, const char *name, int n_prefill_tokens, int n_output_tokens);

/* Errors: in text. */
void key_metrics_write(const struct key_metrics *metrics, struct prom_text *text);

#endif
