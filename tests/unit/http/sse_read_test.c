/* sse_read: events are the same however the bytes are cut. */
#include "support/test.h"

#include <stdio.h>
#include <string.h>

#include "http/sse_read.h"

struct seen {
    char text[1000];
    int n_wanted; /* 0: all */
    int n;
};

static bool on_event(void *owner, const char *data, size_t n_bytes) {
    struct seen *seen = owner;
    assert_int_equal(data[n_bytes], 0);
    size_t at = strlen(seen->text);
    snprintf(seen->text + at, sizeof seen->text - at, "[%.*s]", (int)n_bytes, data);
    return ++seen->n != seen->n_wanted;
}

static const char stream[] = "\r\n: a comment\ndata: one\n\nevent: x\ndata:two\r\ndata:  three\r\n\r\nid: 7\n\n"
                             "data\n\ndatax: no\ndata: four\rdata: five\r\rdata: unfinished\n";
static const char wanted[] = "[one][two\n three][][four\nfive]";

static void pieces_of_every_length(void **state) {
    (void)state;
    for (size_t piece = 1; piece < sizeof stream; piece++) {
        struct seen seen = {0};
        struct sse_read reader;
        sse_read_init(&reader, 100, on_event, &seen);
        for (size_t at = 0; at < sizeof stream - 1; at += piece) {
            size_t n = sizeof stream - 1 - at < piece ? sizeof stream - 1 - at : piece;
            assert_int_equal(sse_read_feed(&reader, stream + at, n), STATUS_OK);
        }
        assert_string_equal(seen.text, wanted);
        sse_read_deinit(&reader);
    }
}

static void long_events_are_an_error(void **state) {
    struct seen seen = {0};
    struct sse_read reader;
    (void)state;
    sse_read_init(&reader, 16, on_event, &seen);
    assert_int_equal(sse_read_feed(&reader, "data: 1234567890\n", 17), STATUS_OK);
    assert_int_equal(sse_read_feed(&reader, "data: 1234567890\n", 17), STATUS_LIMIT);
    sse_read_deinit(&reader);
    sse_read_init(&reader, 16, on_event, &seen);
    for (int i = 0; i < 16; i++) assert_int_equal(sse_read_feed(&reader, "x", 1), STATUS_OK);
    assert_int_equal(sse_read_feed(&reader, "x", 1), STATUS_LIMIT);
    sse_read_deinit(&reader);
}

static void a_reader_may_have_enough(void **state) {
    struct seen seen = {.n_wanted = 2};
    struct sse_read reader;
    (void)state;
    sse_read_init(&reader, 100, on_event, &seen);
    assert_int_equal(sse_read_feed(&reader, stream, sizeof stream - 1), STATUS_CANCELLED);
    assert_string_equal(seen.text, "[one][two\n three]");
    sse_read_deinit(&reader);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pieces_of_every_length),
        cmocka_unit_test(long_events_are_an_error),
        cmocka_unit_test(a_reader_may_have_enough),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
