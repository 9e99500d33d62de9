#include "http/sse_read.h"

#include <string.h>

void sse_read_init(struct sse_read *reader, size_t max_event_bytes, sse_read_fn *on_event, void *owner) {
    *reader = (struct sse_read){.on_event = on_event, .owner = owner};
    str_init(&reader->line, max_event_bytes);
    str_init(&reader->event, max_event_bytes);
}

void sse_read_deinit(struct sse_read *reader) {
    str_deinit(&reader->line);
    str_deinit(&reader->event);
}

static enum status tell(struct sse_read *reader) {
    bool wants_more = !reader->has_data || reader->on_event(reader->owner, reader->event.ptr, reader->event.n_bytes);
    str_clear(&reader->event);
    reader->has_data = false;
    return wants_more ? STATUS_OK : STATUS_CANCELLED;
}

static enum status end_line(struct sse_read *reader) {
    const char *line = reader->line.ptr;
    size_t n = reader->line.n_bytes;
    enum status status = STATUS_OK;
    if (n == 0) return tell(reader);
    if (n >= 4 && memcmp(line, "data", 4) == 0 && (n == 4 || line[4] == ':')) {
        size_t from = n == 4 ? 4 : n > 5 && line[5] == ' ' ? 6 : 5;
        if (reader->has_data) status = str_append(&reader->event, "\n", 1);
        if (!status) status = str_append(&reader->event, line + from, n - from);
        reader->has_data = true;
    }
    str_clear(&reader->line);
    return status;
}

enum status sse_read_feed(struct sse_read *reader, const char *bytes, size_t n_bytes) {
    for (size_t at = 0; at < n_bytes;) {
        if (reader->was_return && bytes[at] == '\n') {
            reader->was_return = false;
            at++;
            continue;
        }
        reader->was_return = false;
        size_t to = at;
        while (to < n_bytes && bytes[to] != '\n' && bytes[to] != '\r') to++;
        enum status status = str_append(&reader->line, bytes + at, to - at);
        if (!status && to < n_bytes) {
            reader->was_return = bytes[to] == '\r';
            status = end_line(reader);
        }
        if (status) return status;
        at = to + 1;
    }
    return STATUS_OK;
}
