/* The limits of http_server: slow senders, silent ones, readers that do not read, bodies together. */
#include "support/test.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "support/http_fixture.h"

/* Sends text, a byte every wait_ms; ends when something came back. Returns how long the reply took. */
static int64_t trickle(int fd, const char *text, int wait_ms, char *reply, size_t max_bytes) {
    struct pollfd wait = {.fd = fd, .events = POLLIN};
    int64_t begun_ns = clock_now_ns();
    while (*text && poll(&wait, 1, wait_ms) == 0)
        if (write(fd, text++, 1) != 1) break;
    http_fixture_receive(fd, reply, max_bytes, NULL, 3000);
    return (clock_now_ns() - begun_ns) / 1000000;
}

static void who_sends_slowly_is_told_and_cut(void **state) {
    struct http_limits limits = http_fixture_usual;
    struct http_fixture fixture;
    char reply[2000];
    (void)state;
    limits.head_ms = 300;
    limits.body_ms = 500;
    http_fixture_start(&fixture, limits);
    int fd = http_fixture_connect(&fixture, 0);
    int64_t ms =
        trickle(fd, "GET /echo HTTP/1.1\r\nHost: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", 20, reply, sizeof reply);
    assert_non_null(strstr(reply, "HTTP/1.1 408 Request Timeout"));
    assert_non_null(strstr(reply, "{\"408\""));
    assert_true(ms > 250 && ms < 2500);
    close(fd);
    fd = http_fixture_connect(&fixture, 0);
    http_fixture_say(fd, "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n");
    ms = trickle(fd, "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", 20, reply, sizeof reply);
    assert_non_null(strstr(reply, "HTTP/1.1 408 Request Timeout"));
    assert_non_null(strstr(reply, "\"path\": \"/echo\""));
    assert_true(ms > 450 && ms < 2700);
    close(fd);
    http_fixture_stop(&fixture);
}

static void who_asks_nothing_more_is_cut(void **state) {
    struct http_limits limits = http_fixture_usual;
    struct http_fixture fixture;
    char reply[2000];
    (void)state;
    limits.idle_ms = 300;
    http_fixture_start(&fixture, limits);
    int fd = http_fixture_connect(&fixture, 0);
    http_fixture_say(fd, "GET /echo HTTP/1.1\r\nHost: x\r\n\r\n");
    http_fixture_receive(fd, reply, sizeof reply, "GET", 2000);
    assert_non_null(strstr(reply, "200 OK"));
    int64_t begun_ns = clock_now_ns();
    assert_int_equal(http_fixture_receive(fd, reply, sizeof reply, NULL, 3000), 0); /* in silence: it is no fault */
    int64_t ms = (clock_now_ns() - begun_ns) / 1000000;
    assert_true(ms > 250 && ms < 2500);
    close(fd);
    http_fixture_stop(&fixture);
}

static void who_does_not_read_is_cut_at_the_limit(void **state) {
    struct http_fixture fixture;
    (void)state;
    http_fixture_start(&fixture, http_fixture_usual);
    int fd = http_fixture_connect(&fixture, 4096);
    http_fixture_say(fd, "GET /flood HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_true(http_fixture_wait(&fixture.n_gone, 1));
    assert_true(atomic_load(&fixture.n_most_pending) > 1 << 19);
    assert_true(atomic_load(&fixture.n_most_pending) < (1 << 20) + 100000);
    close(fd);
    http_fixture_stop(&fixture);
}

static void who_takes_no_byte_for_too_long_is_cut(void **state) {
    struct http_limits limits = http_fixture_usual;
    struct http_fixture fixture;
    (void)state;
    limits.write_ms = 300;
    limits.max_unread_bytes = 64 << 20;
    http_fixture_start(&fixture, limits);
    int fd = http_fixture_connect(&fixture, 0);
    http_fixture_say(fd, "GET /flood HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_true(http_fixture_wait(&fixture.n_gone, 1));
    close(fd);
    http_fixture_stop(&fixture);
}

static void bodies_have_room_together(void **state) {
    static const char begin[] = "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 900\r\n\r\n";
    struct http_fixture fixture;
    char reply[2000];
    int fds[5];
    (void)state;
    http_fixture_start(&fixture, http_fixture_usual);
    for (int i = 0; i < 4; i++) {
        fds[i] = http_fixture_connect(&fixture, 0);
        http_fixture_say(fds[i], begin);
    }
    thread_sleep_ms(100);
    fds[4] = http_fixture_connect(&fixture, 0);
    http_fixture_say(fds[4], begin);
    http_fixture_receive(fds[4], reply, sizeof reply, NULL, 1000);
    assert_non_null(strstr(reply, "HTTP/1.1 503"));
    close(fds[4]);
    close(fds[0]);
    thread_sleep_ms(100);
    fds[4] = http_fixture_connect(&fixture, 0);
    http_fixture_say(fds[4], begin);
    assert_int_equal(http_fixture_receive(fds[4], reply, sizeof reply, NULL, 200), 0); /* it may send */
    for (int i = 1; i < 5; i++) close(fds[i]);
    http_fixture_stop(&fixture);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_sends_slowly_is_told_and_cut),
        cmocka_unit_test(who_asks_nothing_more_is_cut),
        cmocka_unit_test(who_does_not_read_is_cut_at_the_limit),
        cmocka_unit_test(who_takes_no_byte_for_too_long_is_cut),
        cmocka_unit_test(bodies_have_room_together),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
