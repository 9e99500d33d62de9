/* verify_server: one question, asked again and again of a server that is busy with others, and whether it gives one
 * answer.
 *
 * Thread: the caller's.   Memory: VERIFY_SERVER_STREAMS answers at a time. */
#ifndef KVICK_BENCH_VERIFY_SERVER_H
#define KVICK_BENCH_VERIFY_SERVER_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "base/hash.h"
#include "base/status.h"

#define VERIFY_SERVER_ASKS 200
#define VERIFY_SERVER_STREAMS 16 /* half of them ask something else each time */

struct verify_server_report {
    char model[64]; /* cut */
    int n_answers, n_distinct, n_others;
    uint8_t digest[HASH_SHA256_BYTES]; /* of the first answer: its token ids, or its text where no ids are told */
    bool has_ids;
    int first_other;  /* which answer differed first; -1: none */
    char text[2][64]; /* of the first answer and of that one, from a little before where they part; cut */
};

/* api_key NULL: none. progress: gets a line for every 50 answers, or NULL.
 * Errors: as load_target_find; STATUS_PEER with the reason when an answer fails, STATUS_NOMEM. */
WARN_UNUSED enum status verify_server(const char *url, const char *api_key, FILE *progress,
                                      struct verify_server_report *report, struct status_note *note);

#endif
