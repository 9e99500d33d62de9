#include "base/ring.h"

#include <stdint.h>

#include "base/clock.h"
#include "base/thread.h"
#include "support/test.h"

#define N_PRODUCERS 4
#define N_EACH 20000

struct item {
    int producer, number;
};

static void items_come_out_in_order(void **state) {
    struct ring ring;
    int item = 0;
    (void)state;
    assert_int_equal(ring_init(&ring, sizeof item, 5), STATUS_OK);
    assert_int_equal(ring_max_items(&ring), 8);
    assert_false(ring_pop(&ring, &item));
    for (int round = 0; round < 100; round++) {
        for (int i = 0; i < 3 + round % 6; i++) {
            item = round * 10 + i;
            assert_int_equal(ring_push(&ring, &item), STATUS_OK);
        }
        assert_int_equal(ring_n_items(&ring), 3 + round % 6);
        for (int i = 0; i < 3 + round % 6; i++) {
            assert_true(ring_pop(&ring, &item));
            assert_int_equal(item, round * 10 + i);
        }
        assert_false(ring_pop(&ring, &item));
    }
    ring_deinit(&ring);
}

static void a_full_ring_says_so_and_keeps_what_it_has(void **state) {
    struct ring ring;
    int item = 0;
    (void)state;
    assert_int_equal(ring_init(&ring, sizeof item, 4), STATUS_OK);
    for (; item < 4; item++) assert_int_equal(ring_push(&ring, &item), STATUS_OK);
    for (int i = 0; i < 3; i++) assert_int_equal(ring_push(&ring, &item), STATUS_LIMIT);
    assert_int_equal(ring_n_items(&ring), 4);
    for (int i = 0; i < 4; i++) {
        assert_true(ring_pop(&ring, &item));
        assert_int_equal(item, i);
    }
    assert_int_equal(ring_push(&ring, &item), STATUS_OK);
    ring_deinit(&ring);
}

static void waiting_ends_with_the_time(void **state) {
    struct ring ring;
    int item = 7;
    (void)state;
    assert_int_equal(ring_init(&ring, sizeof item, 4), STATUS_OK);
    int64_t start_ns = clock_now_ns();
    assert_false(ring_wait(&ring, 30));
    assert_in_range(clock_now_ns() - start_ns, 25000000, 5000000000);
    assert_false(ring_wait(&ring, 0));
    assert_int_equal(ring_push(&ring, &item), STATUS_OK);
    assert_true(ring_wait(&ring, -1));
    assert_true(ring_wait(&ring, 0)); /* waiting takes nothing */
    assert_true(ring_pop(&ring, &item));
    assert_false(ring_wait(&ring, 0));
    ring_deinit(&ring);
}

struct producer {
    struct ring *ring;
    int idx;
};

static void produce(void *arg) {
    struct producer *producer = arg;
    for (int i = 0; i < N_EACH; i++) {
        struct item item = {producer->idx, i};
        while (ring_push(producer->ring, &item)) continue;
    }
}

/* The consumer sleeps whenever the ring is empty: a lost wake-up would hang here. */
static void several_producers_lose_nothing(void **state) {
    struct ring ring;
    struct thread threads[N_PRODUCERS];
    struct producer producers[N_PRODUCERS];
    int next[N_PRODUCERS] = {0};
    (void)state;
    assert_int_equal(ring_init(&ring, sizeof(struct item), 16), STATUS_OK);
    for (int i = 0; i < N_PRODUCERS; i++) {
        producers[i] = (struct producer){&ring, i};
        assert_int_equal(thread_start(&threads[i], "producer", produce, &producers[i]), STATUS_OK);
    }
    for (int n = 0; n < N_PRODUCERS * N_EACH; n++) {
        struct item item;
        if (!ring_wait(&ring, 20000)) fail_msg("woken up never, after %d items", n);
        assert_true(ring_pop(&ring, &item));
        assert_in_range(item.producer, 0, N_PRODUCERS - 1);
        assert_int_equal(item.number, next[item.producer]++);
    }
    for (int i = 0; i < N_PRODUCERS; i++) thread_join(&threads[i]);
    assert_int_equal(ring_n_items(&ring), 0);
    ring_deinit(&ring);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(items_come_out_in_order),
        cmocka_unit_test(a_full_ring_says_so_and_keeps_what_it_has),
        cmocka_unit_test(waiting_ends_with_the_time),
        cmocka_unit_test(several_producers_lose_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
