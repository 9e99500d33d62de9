/* load_rows: what a server did under each load that it was put under, a row of figures each; what follows from them.
 *
 * Thread: one owner.   Memory: fixed. */
#ifndef KVICK_BENCH_LOAD_ROWS_H
#define KVICK_BENCH_LOAD_ROWS_H

#include <jansson.h>

#include "base/str.h"

#define LOAD_ROWS_MAX 64
#define LOAD_ROWS_NAME_BYTES 80

/* XX(name, option of serve or NULL, heading, what is varied) */
#define LOAD_GROUP_MAP(XX)                                                                                             \
    XX(SCENARIO, NULL, "Kinds of load", "the kind of load")                                                            \
    XX(CLIENTS, NULL, "Clients", "clients that ask at a time")                                                         \
    XX(AT_ONCE, "--max-num-seqs", "Batch limit", "answers that the server runs at a time")                             \
    XX(CHUNK, "--chunk", "Chunks", "prompt tokens in one step")                                                        \
    XX(THREADS, "--threads", "Cores", "threads of the server")

enum load_group {
#define XX(name, option, heading, what) LOAD_GROUP_##name,
    LOAD_GROUP_MAP(XX)
#undef XX
        LOAD_N_GROUPS
};

/* Milliseconds; p50 < 0: nothing was measured. */
struct load_spread {
    double p50, p95, p99, max;
};

struct load_row {
    enum load_group group;
    char name[LOAD_ROWS_NAME_BYTES];
    double value; /* of what is varied */
    int n_done, n_refused;
    struct load_spread ttft, gap; /* first token; between two tokens of an answer */
    double new_tok_s, prompt_tok_s;
};

struct load_rows {
    struct load_row of[LOAD_ROWS_MAX];
    int n;
};

/* The option of serve that the group varies; NULL: none. Its heading; what it varies. */
const char *load_rows_option(enum load_group group);
const char *load_rows_heading(enum load_group group);
const char *load_rows_what(enum load_group group);

/* summary: of outcomes_json. NULL: there is no room for another. */
const struct load_row *load_rows_add(struct load_rows *rows, enum load_group group, const char *name, double value,
                                     const json_t *summary);

/* For a terminal: the line above the rows, and a row. Errors: those of str_append. */
WARN_UNUSED enum status load_rows_head(struct str *out);
WARN_UNUSED enum status load_rows_text(const struct load_row *row, struct str *out);

/* The row of a group to choose: the most tokens of those with 95 % of the gaps within max_gap_ms, and where none is the
 * one with the shortest gaps. NULL: the group was not measured. */
const struct load_row *load_rows_best(const struct load_rows *rows, enum load_group group, double max_gap_ms);

/* The flags of serve that follow, as " --max-num-seqs 8 --threads 4"; empty if nothing does. A chunk is
 * named only where it beats the group's first, the usual one, by a tenth in both the gaps' and the first tokens' 95 %.
 */
WARN_UNUSED enum status load_rows_flags(const struct load_rows *rows, double max_gap_ms, struct str *out);

#endif
