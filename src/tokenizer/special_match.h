/* special_match: finds tokens that are matched as whole texts before anything else: user-defined ones everywhere,
 * control ones only where the caller allows it.
 *
 * A user-defined token that is written like a control token ("<|...|>") is treated as one: model files mark turn tokens
 * either way, and user text must not be able to open a turn.   Thread: any, const after init. */
#ifndef KVICK_TOKENIZER_SPECIAL_MATCH_H
#define KVICK_TOKENIZER_SPECIAL_MATCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "tokenizer/vocab.h"

#define SPECIAL_MATCH_MAX_BYTES 512 /* of a special token; a bound on the work per byte of text */

struct special_match {
    const struct vocab *vocab;
    int32_t *ids; /* [n_ids] sorted by the tokens' bytes */
    int32_t n_ids;
    int32_t first_from[257]; /* ids whose first byte is b: [first_from[b], first_from[b + 1]) */
};

/* vocab must outlive match. Errors: STATUS_FORMAT for a special token that is too long, STATUS_NOMEM. */
WARN_UNUSED enum status special_match_init(struct special_match *match, const struct vocab *vocab,
                                           struct status_note *note);
void special_match_deinit(struct special_match *match);

/* True for tokens that need permission: control and unknown ones, and those written like them. */
bool special_match_is_control(const struct vocab *vocab, int32_t id);

/* The longest token that text begins with: any within the first n_control bytes, else user-defined ones within n_bytes.
 * -1: none. */
int32_t special_match_at(const struct special_match *match, const char *text, size_t n_bytes, size_t n_control);

#endif
