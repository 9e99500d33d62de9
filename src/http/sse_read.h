/* sse_read: server-sent events out of the bytes of a stream, however they are cut.
 *
 * Comments, event names, ids and retries are passed over: only data is told.
 * Thread: one owner.   Memory: bounded by max_event_bytes.   Source: WHATWG HTML, 9.2. */
#ifndef KVICK_HTTP_SSE_READ_H
#define KVICK_HTTP_SSE_READ_H

#include <stdbool.h>

#include "base/str.h"

/* The lines of an event's data, joined by line feeds, with a final NUL. False: no more are wanted. */
typedef bool sse_read_fn(void *owner, const char *data, size_t n_bytes);

struct sse_read {
    struct str line, event;
    bool has_data, was_return; /* a carriage return came last: a line feed behind it ends no further line */
    sse_read_fn *on_event;
    void *owner;
};

void sse_read_init(struct sse_read *reader, size_t max_event_bytes, sse_read_fn *on_event, void *owner);
void sse_read_deinit(struct sse_read *reader);

/* Errors: STATUS_LIMIT for a longer event, STATUS_NOMEM, STATUS_CANCELLED when on_event wants no more. */
WARN_UNUSED enum status sse_read_feed(struct sse_read *reader, const char *bytes, size_t n_bytes);

#endif
