#include "base/ring.h"

#include <errno.h>
#include <poll.h>
#include <stdint.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"

/* A cell is free for the push number p when seq == p, and holds its item when seq == p + 1. */
struct ring_cell {
    atomic_size_t seq;
    char item[];
};

static struct ring_cell *cell_at(const struct ring *ring, size_t pos) {
    return (struct ring_cell *)(ring->cells + (pos & ring->mask) * ring->cell_bytes);
}

enum status ring_init(struct ring *ring, size_t item_bytes, size_t max_items) {
    size_t n_cells = 2; /* in a ring of one cell, full and free for the next round would be the same number */
    while (n_cells < max_items) n_cells *= 2;
    *ring = (struct ring){.item_bytes = item_bytes, .mask = n_cells - 1, .event_fd = -1};
    ring->cell_bytes = (sizeof(struct ring_cell) + item_bytes + 15) / 16 * 16;
    ring->cells = mem_alloc_array(n_cells, ring->cell_bytes);
    if (!ring->cells) return STATUS_NOMEM;
    for (size_t i = 0; i < n_cells; i++) atomic_init(&cell_at(ring, i)->seq, i);
    ring->event_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (ring->event_fd >= 0) return STATUS_OK;
    ring_deinit(ring);
    return STATUS_LIMIT;
}

void ring_deinit(struct ring *ring) {
    if (ring->cells && ring->event_fd >= 0) close(ring->event_fd);
    mem_free(ring->cells);
    ring->cells = NULL;
    ring->event_fd = -1;
}

void ring_wake(struct ring *ring) {
    uint64_t one = 1;
    /* seq_cst on both sides of the flag: either this sees the sleeper or the sleeper sees the item */
    if (!atomic_load_explicit(&ring->is_consumer_asleep, memory_order_seq_cst)) return;
    ssize_t n_written = write(ring->event_fd, &one, sizeof one);
    (void)n_written; /* EAGAIN means the counter is high: the consumer will wake */
}

enum status ring_put(struct ring *ring, const void *item) {
    size_t pos = atomic_load_explicit(&ring->push_pos, memory_order_relaxed);
    struct ring_cell *cell;
    for (;;) {
        cell = cell_at(ring, pos);
        size_t seq = atomic_load_explicit(&cell->seq, memory_order_acquire);
        if (seq == pos) {
            if (atomic_compare_exchange_weak_explicit(&ring->push_pos, &pos, pos + 1, memory_order_relaxed,
                                                      memory_order_relaxed))
                break;
        } else if ((intptr_t)(seq - pos) < 0) {
            return STATUS_LIMIT;
        } else {
            pos = atomic_load_explicit(&ring->push_pos, memory_order_relaxed);
        }
    }
    memcpy(cell->item, item, ring->item_bytes);
    atomic_store_explicit(&cell->seq, pos + 1, memory_order_seq_cst);
    return STATUS_OK;
}

enum status ring_push(struct ring *ring, const void *item) {
    enum status status = ring_put(ring, item);
    if (!status) ring_wake(ring);
    return status;
}

static bool has_item(const struct ring *ring) {
    size_t pos = atomic_load_explicit(&ring->pop_pos, memory_order_relaxed);
    return atomic_load_explicit(&cell_at(ring, pos)->seq, memory_order_seq_cst) == pos + 1;
}

bool ring_pop(struct ring *ring, void *out_item) {
    if (!has_item(ring)) return false;
    size_t pos = atomic_load_explicit(&ring->pop_pos, memory_order_relaxed);
    struct ring_cell *cell = cell_at(ring, pos);
    memcpy(out_item, cell->item, ring->item_bytes);
    atomic_store_explicit(&cell->seq, pos + ring->mask + 1, memory_order_release);
    atomic_store_explicit(&ring->pop_pos, pos + 1, memory_order_relaxed);
    return true;
}

bool ring_arm(struct ring *ring) {
    atomic_store_explicit(&ring->is_consumer_asleep, true, memory_order_seq_cst);
    if (!has_item(ring)) return true;
    atomic_store_explicit(&ring->is_consumer_asleep, false, memory_order_seq_cst);
    return false;
}

void ring_disarm(struct ring *ring) {
    uint64_t count;
    atomic_store_explicit(&ring->is_consumer_asleep, false, memory_order_seq_cst);
    while (read(ring->event_fd, &count, sizeof count) < 0 && errno == EINTR) continue;
}

bool ring_wait(struct ring *ring, int timeout_ms) {
    int64_t deadline_ns = clock_now_ns() + (int64_t)timeout_ms * 1000000;
    for (;;) {
        atomic_store_explicit(&ring->is_consumer_asleep, true, memory_order_seq_cst);
        bool is_ready = has_item(ring);
        int left_ms = timeout_ms;
        if (timeout_ms > 0) left_ms = (int)((deadline_ns - clock_now_ns() + 999999) / 1000000);
        if (!is_ready && (timeout_ms < 0 || left_ms > 0)) {
            struct pollfd fd = {.fd = ring->event_fd, .events = POLLIN};
            poll(&fd, 1, left_ms);
        }
        ring_disarm(ring);
        if (is_ready || has_item(ring)) return true;
        if (timeout_ms >= 0 && clock_now_ns() >= deadline_ns) return false;
    }
}

size_t ring_n_items(const struct ring *ring) {
    return atomic_load_explicit(&ring->push_pos, memory_order_relaxed) -
           atomic_load_explicit(&ring->pop_pos, memory_order_relaxed);
}

size_t ring_max_items(const struct ring *ring) {
    return ring->mask + 1;
}
