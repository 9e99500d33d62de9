#include "chat/stop_match.h"

#include <stdint.h>
#include <string.h>

#define MAX_HELD_BYTES ((size_t)1 << 20)

void stop_match_init(struct stop_match *match, const struct stop_string *stops, int n_stops, bool keeps_stop) {
    *match = (struct stop_match){.stops = stops, .n_stops = n_stops, .keeps_stop = keeps_stop, .found = -1};
    str_init(&match->held, MAX_HELD_BYTES);
}

void stop_match_deinit(struct stop_match *match) {
    str_deinit(&match->held);
}

/* The stop that ends first in the held text; -1: none is complete. */
static int find(const struct stop_match *match, size_t *out_begin) {
    size_t best_end = SIZE_MAX;
    int best = -1;
    for (int i = 0; i < match->n_stops; i++) {
        const struct stop_string *stop = &match->stops[i];
        const char *at = memmem(match->held.ptr, match->held.n_bytes, stop->ptr, stop->n_bytes);
        if (!at) continue;
        size_t begin = (size_t)(at - match->held.ptr), end = begin + stop->n_bytes;
        if (end > best_end || (end == best_end && begin >= *out_begin)) continue;
        best = i;
        best_end = end;
        *out_begin = begin;
    }
    return best;
}

/* Bytes at the end of the held text that some stop may begin with. */
static size_t open_tail(const struct stop_match *match) {
    size_t longest = 0;
    for (int i = 0; i < match->n_stops; i++) {
        const struct stop_string *stop = &match->stops[i];
        size_t n = stop->n_bytes - 1 < match->held.n_bytes ? stop->n_bytes - 1 : match->held.n_bytes;
        for (; n > longest; n--)
            if (memcmp(match->held.ptr + match->held.n_bytes - n, stop->ptr, n) == 0) longest = n;
    }
    return longest;
}

static enum status give_out(struct stop_match *match, size_t n_out, size_t n_dropped, struct str *out) {
    enum status status = str_append(out, match->held.ptr, n_out);
    if (status) return status;
    size_t n_used = n_out + n_dropped;
    memmove(match->held.ptr, match->held.ptr + n_used, match->held.n_bytes - n_used + 1);
    match->held.n_bytes -= n_used;
    return STATUS_OK;
}

enum status stop_match_push(struct stop_match *match, const char *bytes, size_t n_bytes, struct str *out) {
    if (match->found >= 0) return STATUS_OK;
    if (match->n_stops == 0) return str_append(out, bytes, n_bytes);
    if (n_bytes == 0) return STATUS_OK;
    enum status status = str_append(&match->held, bytes, n_bytes);
    if (status) return status;
    size_t begin = 0;
    match->found = find(match, &begin);
    if (match->found < 0) return give_out(match, match->held.n_bytes - open_tail(match), 0, out);
    size_t n_kept = match->keeps_stop ? match->stops[match->found].n_bytes : 0;
    return give_out(match, begin + n_kept, match->held.n_bytes - begin - n_kept, out);
}

enum status stop_match_finish(struct stop_match *match, struct str *out) {
    return match->held.n_bytes ? give_out(match, match->held.n_bytes, 0, out) : STATUS_OK;
}
