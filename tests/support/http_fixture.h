/* http_fixture: an http_server on a thread of its own, with paths that reply, stream, hold, pause and flood.
 *
 * /echo replies with method, query q, body, header x-my and how often that came; /stream sends two events; /hold
 * replies when must_answer is set; /slow is a stream with an event every 1.5 s; /flood is sent as much as it takes;
 * /never is refused from its head. */
#ifndef KVICK_TESTS_HTTP_FIXTURE_H
#define KVICK_TESTS_HTTP_FIXTURE_H

#include <stdatomic.h>

#include "support/http_host.h"

struct http_fixture {
    struct http_host host;
    struct http_exchange *held, *slow, *flood;
    int n_slow_left, n_ticks;
    atomic_int n_held, n_gone, n_most_pending;
    atomic_bool must_answer;
};

extern const struct http_limits http_fixture_usual;

void http_fixture_start(struct http_fixture *fixture, struct http_limits limits);
void http_fixture_stop(struct http_fixture *fixture);

/* receive_bytes: of the socket's buffer; 0: as usual. */
int http_fixture_connect(const struct http_fixture *fixture, int receive_bytes);

void http_fixture_say(int fd, const char *text);

/* Reads until the reply holds end, the connection closes, or wait_ms pass without a byte. Returns the bytes. */
size_t http_fixture_receive(int fd, char *out, size_t max_bytes, const char *end, int wait_ms);

/* Whether value becomes wanted within 3 s. */
bool http_fixture_wait(const atomic_int *value, int wanted);

#endif
