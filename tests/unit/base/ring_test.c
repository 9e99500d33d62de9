#include "base/ring.h"

#include <fcntl.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/thread.h"
#include "support/test.h"

#define N_PRODUCERS 4
#define ITEMS_PER_PRODUCER 20000
#define LONG_MS 20000 /* no test takes that long: a wake-up was lost */
#define MS_NS 1000000

struct item {
    uint32_t producer, number;
    char padding[20]; /* no multiple of the cell's alignment */
};

static void items_come_out_in_the_order_they_went_in(void **state) {
    (void)state;
    struct ring ring;
    struct item item = {0};
    assert_int_equal(ring_init(&ring, sizeof item, 8), STATUS_OK);
    uint32_t n_in = 0, n_out = 0;
    for (int round = 0; round < 1000; round++) { /* wraps often, at every fill */
        for (int i = 0; i <= round % 8; i++) {
            item.number = n_in++;
            memset(item.padding, (char)item.number, sizeof item.padding);
            assert_int_equal(ring_push(&ring, &item), STATUS_OK);
        }
        assert_int_equal(ring_n_items(&ring), (size_t)(round % 8 + 1));
        while (ring_pop(&ring, &item)) {
            assert_int_equal(item.number, n_out);
            for (size_t i = 0; i < sizeof item.padding; i++) assert_int_equal(item.padding[i], (char)n_out);
            n_out++;
        }
        assert_int_equal(ring_n_items(&ring), 0);
    }
    assert_int_equal(n_out, n_in);
    ring_deinit(&ring);
}

static void a_full_ring_refuses_and_keeps_what_it_has(void **state) {
    (void)state;
    for (size_t asked = 1; asked <= 9; asked++) {
        struct ring ring;
        uint32_t value;
        assert_int_equal(ring_init(&ring, sizeof value, asked), STATUS_OK);
        size_t max_items = ring_max_items(&ring);
        assert_true(max_items >= asked && (max_items & (max_items - 1)) == 0);
        for (uint32_t i = 0; i < max_items; i++) assert_int_equal(ring_push(&ring, &i), STATUS_OK);
        for (value = 100; value < 103; value++) assert_int_equal(ring_push(&ring, &value), STATUS_LIMIT);
        assert_int_equal(ring_n_items(&ring), max_items);
        assert_true(ring_pop(&ring, &value));
        assert_int_equal(value, 0);
        value = 77;
        assert_int_equal(ring_push(&ring, &value), STATUS_OK);
        assert_int_equal(ring_push(&ring, &value), STATUS_LIMIT);
        for (uint32_t i = 1; i < max_items; i++) {
            assert_true(ring_pop(&ring, &value));
            assert_int_equal(value, i);
        }
        assert_true(ring_pop(&ring, &value));
        assert_int_equal(value, 77);
        assert_false(ring_pop(&ring, &value));
        ring_deinit(&ring);
    }
}

struct producer {
    struct ring *ring;
    uint32_t idx;
    struct thread thread;
};

static void produce(void *arg) {
    struct producer *producer = arg;
    struct item item = {.producer = producer->idx};
    for (item.number = 0; item.number < ITEMS_PER_PRODUCER; item.number++)
        while (ring_push(producer->ring, &item)) sched_yield();
}

static void many_producers_lose_nothing_and_keep_their_order(void **state) {
    (void)state;
    static const size_t sizes[] = {1, 2, 64};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        struct ring ring;
        struct producer producers[N_PRODUCERS];
        struct item item;
        uint32_t n_seen[N_PRODUCERS] = {0};
        assert_int_equal(ring_init(&ring, sizeof item, sizes[i]), STATUS_OK);
        for (uint32_t p = 0; p < N_PRODUCERS; p++) {
            producers[p] = (struct producer){.ring = &ring, .idx = p};
            assert_int_equal(thread_start(&producers[p].thread, "producer", produce, &producers[p]), STATUS_OK);
        }
        for (int n = 0; n < N_PRODUCERS * ITEMS_PER_PRODUCER; n++) {
            assert_true(ring_wait(&ring, LONG_MS));
            assert_true(ring_pop(&ring, &item));
            assert_true(item.producer < N_PRODUCERS);
            assert_int_equal(item.number, n_seen[item.producer]++);
        }
        for (int p = 0; p < N_PRODUCERS; p++) thread_join(&producers[p].thread);
        assert_false(ring_pop(&ring, &item));
        ring_deinit(&ring);
    }
}

static void a_sleeper_hears_of_items_that_are_put_by_the_wake_alone(void **state) {
    (void)state;
    struct ring ring;
    uint64_t count;
    int value = 0;
    assert_int_equal(ring_init(&ring, sizeof value, 4), STATUS_OK);
    assert_true(ring_arm(&ring));
    for (; value < 3; value++) assert_int_equal(ring_put(&ring, &value), STATUS_OK);
    assert_int_equal(read(ring.event_fd, &count, sizeof count), -1);
    ring_wake(&ring);
    assert_int_equal(read(ring.event_fd, &count, sizeof count), sizeof count);
    assert_int_equal(count, 1);
    ring_disarm(&ring);
    for (int i = 0; i < 3; i++) {
        assert_true(ring_pop(&ring, &value));
        assert_int_equal(value, i);
    }
    for (value = 0; value < 4; value++) assert_int_equal(ring_put(&ring, &value), STATUS_OK);
    assert_int_equal(ring_put(&ring, &value), STATUS_LIMIT);
    ring_wake(&ring); /* nobody sleeps: nothing to do */
    assert_int_equal(read(ring.event_fd, &count, sizeof count), -1);
    assert_false(ring_arm(&ring)); /* what was put is seen by whoever goes to sleep */
    ring_deinit(&ring);
}

static void waiting_for_nothing_ends_at_its_time(void **state) {
    (void)state;
    struct ring ring;
    int value = 1;
    assert_int_equal(ring_init(&ring, sizeof value, 4), STATUS_OK);
    int64_t start_ns = clock_now_ns();
    for (int i = 0; i < 100; i++) assert_false(ring_wait(&ring, 0));
    assert_true(clock_now_ns() - start_ns < 500 * (int64_t)MS_NS);
    start_ns = clock_now_ns();
    assert_false(ring_wait(&ring, 40));
    assert_true(clock_now_ns() - start_ns >= 40 * (int64_t)MS_NS);
    assert_int_equal(ring_push(&ring, &value), STATUS_OK);
    start_ns = clock_now_ns();
    assert_true(ring_wait(&ring, LONG_MS));
    assert_true(ring_wait(&ring, 0));
    assert_true(clock_now_ns() - start_ns < LONG_MS / 2 * (int64_t)MS_NS);
    ring_deinit(&ring);
}

static void push_late(void *arg) {
    int value = 9;
    usleep(30000);
    if (ring_push(arg, &value)) abort();
}

static void a_push_wakes_who_waits_for_ever(void **state) {
    (void)state;
    struct ring ring;
    struct thread thread;
    int value = 0;
    assert_int_equal(ring_init(&ring, sizeof value, 4), STATUS_OK);
    assert_int_equal(thread_start(&thread, "late", push_late, &ring), STATUS_OK);
    int64_t start_ns = clock_now_ns();
    assert_true(ring_wait(&ring, -1));
    assert_true(clock_now_ns() - start_ns >= 10 * (int64_t)MS_NS); /* it slept, it did not find the item at once */
    assert_true(ring_pop(&ring, &value));
    assert_int_equal(value, 9);
    thread_join(&thread);
    /* What woke it is used up: the next wait sleeps. */
    start_ns = clock_now_ns();
    assert_false(ring_wait(&ring, 30));
    assert_true(clock_now_ns() - start_ns >= 30 * (int64_t)MS_NS);
    ring_deinit(&ring);
}

/* A producer's wake-up may arrive when its item has been taken already. */
static void a_wake_up_without_an_item_ends_no_wait(void **state) {
    (void)state;
    struct ring ring;
    uint64_t one = 1;
    assert_int_equal(ring_init(&ring, 4, 4), STATUS_OK);
    assert_int_equal(write(ring.event_fd, &one, sizeof one), sizeof one);
    int64_t start_ns = clock_now_ns();
    assert_false(ring_wait(&ring, 40));
    assert_true(clock_now_ns() - start_ns >= 40 * (int64_t)MS_NS);
    ring_deinit(&ring);
}

struct table {
    struct ring to, from;
};

static void answer(void *arg) {
    struct table *table = arg;
    int value = 0;
    while (value >= 0 && ring_wait(&table->to, LONG_MS) && ring_pop(&table->to, &value))
        if (ring_push(&table->from, &value)) abort();
}

/* One item at a time makes both sides sleep at every turn: the race of push against falling asleep. */
static void no_wake_up_is_lost(void **state) {
    (void)state;
    struct table table;
    struct thread thread;
    assert_int_equal(ring_init(&table.to, sizeof(int), 2), STATUS_OK);
    assert_int_equal(ring_init(&table.from, sizeof(int), 2), STATUS_OK);
    assert_int_equal(thread_start(&thread, "answer", answer, &table), STATUS_OK);
    for (int i = 0; i <= 20000; i++) {
        int value = i < 20000 ? i : -1, back = -2;
        assert_int_equal(ring_push(&table.to, &value), STATUS_OK);
        assert_true(ring_wait(&table.from, LONG_MS));
        assert_true(ring_pop(&table.from, &back));
        assert_int_equal(back, value);
    }
    thread_join(&thread);
    ring_deinit(&table.to);
    ring_deinit(&table.from);
}

static void its_end_gives_everything_back(void **state) {
    (void)state;
    struct ring ring;
    long n_live = mem_n_live();
    assert_int_equal(ring_init(&ring, 8, 8), STATUS_OK);
    int fd = ring.event_fd;
    assert_true(fcntl(fd, F_GETFD) >= 0);
    ring_deinit(&ring);
    assert_int_equal(fcntl(fd, F_GETFD), -1);
    ring_deinit(&ring); /* twice is once */
    mem_fail_from(1);
    assert_int_equal(ring_init(&ring, 8, 8), STATUS_NOMEM);
    mem_fail_from(0);
    ring_deinit(&ring);
    assert_int_equal(mem_n_live(), n_live);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(items_come_out_in_the_order_they_went_in),
        cmocka_unit_test(a_full_ring_refuses_and_keeps_what_it_has),
        cmocka_unit_test(many_producers_lose_nothing_and_keep_their_order),
        cmocka_unit_test(a_sleeper_hears_of_items_that_are_put_by_the_wake_alone),
        cmocka_unit_test(waiting_for_nothing_ends_at_its_time),
        cmocka_unit_test(a_push_wakes_who_waits_for_ever),
        cmocka_unit_test(a_wake_up_without_an_item_ends_no_wait),
        cmocka_unit_test(no_wake_up_is_lost),
        cmocka_unit_test(its_end_gives_everything_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
