/* stop_match: ends a text before the first stop string that is complete in it, however the text is cut into pieces.
 *
 * Of several stops the one that ends first wins, of those the one that begins first. Text is held back while it may be
 * the beginning of a stop: never more than the longest suffix that is a proper prefix of one.
 * Thread: one owner.   Memory: the held text, shorter than the longest stop plus a piece. */
#ifndef KVICK_CHAT_STOP_MATCH_H
#define KVICK_CHAT_STOP_MATCH_H

#include <stdbool.h>

#include "base/str.h"

struct stop_string {
    const char *ptr; /* borrowed; n_bytes >= 1 */
    size_t n_bytes;
};

struct stop_match {
    const struct stop_string *stops; /* [n_stops] borrowed */
    int n_stops;
    bool keeps_stop; /* the stop string itself is given out */
    int found;       /* which stop was found; -1 */
    struct str held;
};

void stop_match_init(struct stop_match *match, const struct stop_string *stops, int n_stops, bool keeps_stop);
void stop_match_deinit(struct stop_match *match);

/* Takes a piece and appends to out what is certain. Afterwards match->found tells whether the text is over; pieces
 * past that are dropped. Errors: those of str_append. */
WARN_UNUSED enum status stop_match_push(struct stop_match *match, const char *bytes, size_t n_bytes, struct str *out);

/* The text ended without a stop: gives out what was held. */
WARN_UNUSED enum status stop_match_finish(struct stop_match *match, struct str *out);

#endif
