/* diagnosis_rules: what may be wrong with a server, a row each: how it shows in the figures, what it is called, what to
 * do about it.
 *
 * Factors compare the recent minute with the baseline, by quantiles; shares are of all the time until first tokens.
 * Thread: that of the window.   Memory: none. */
#ifndef KVICK_OBSERVE_DIAGNOSIS_RULES_H
#define KVICK_OBSERVE_DIAGNOSIS_RULES_H

#include "observe/diagnosis_window.h"

#define DIAGNOSIS_RULES_MAX_TEXT 400

/* What a window comes to. */
struct diagnosis_figures {
    int n; /* with a first token */
    double seconds;
    struct diagnosis_sums sums;
    double p50[DIAGNOSIS_N_QUANTITIES], p95[DIAGNOSIS_N_QUANTITIES];
    int n_answers; /* of which the inter-token time is known */
};

struct diagnosis_facts {
    struct diagnosis_window *window;
    struct diagnosis_figures now, before;
    bool has_before; /* enough to compare with */
    bool is_ttft_up, is_itl_up;
    double ttft_x, itl_x;                      /* of the p95 of first tokens, of the median time between tokens */
    double grown[N_PHASES];                    /* each part's share in what first tokens take longer than before */
    int top_key;                               /* whose prompts took most of the prefill tokens */
    double top_share, top_share_before, top_x; /* of the prefill tokens; the factor of their rate */
    int long_tokens;                           /* prompts from here on are called long */
    struct diagnosis_long long_prompts, long_before;
    double short_p95, short_wait_p95; /* ms; TTFT of the others, and what of it is waiting */
};

/* Rules of one group explain the same thing: the first that holds speaks. */
enum diagnosis_group { DIAGNOSIS_FRONT, DIAGNOSIS_STEPS, DIAGNOSIS_READERS, DIAGNOSIS_PROMISES };

struct diagnosis_rule {
    const char *name;
    enum diagnosis_group group; /* FRONT: each speaks for itself */
    int n_held;                 /* it speaks when it has held for so many buckets in a row */
    bool (*holds)(const struct diagnosis_facts *facts);
    void (*say)(const struct diagnosis_facts *facts, char out[DIAGNOSIS_RULES_MAX_TEXT]);
    const char *advice;
};

const struct diagnosis_rule *diagnosis_rules_table(int *out_n);

/* Both windows, as they are now. */
void diagnosis_rules_read(struct diagnosis_window *window, struct diagnosis_facts *out);

#endif
