/* ring: a bounded queue of messages between threads; pushing gives a message away.
 *
 * Any number of producers, one consumer. Neither side takes a lock; the consumer sleeps on an eventfd that an event
 * loop can watch.   Memory: fixed at init.   Source: bounded queue by sequence numbers, D. Vyukov. */
#ifndef KVICK_BASE_RING_H
#define KVICK_BASE_RING_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

struct ring_cell;

struct ring {
    size_t item_bytes, cell_bytes, mask;
    char *cells;
    int event_fd;
    _Alignas(64) atomic_size_t push_pos;
    _Alignas(64) atomic_size_t pop_pos;
    atomic_bool is_consumer_asleep;
};

/* max_items is rounded up to a power of two, at least 2. Errors: STATUS_NOMEM, STATUS_LIMIT (no eventfd to be had). */
WARN_UNUSED enum status ring_init(struct ring *ring, size_t item_bytes, size_t max_items);
void ring_deinit(struct ring *ring);

/* Copies *item in. Errors: STATUS_LIMIT when full; nothing has changed. */
WARN_UNUSED enum status ring_push(struct ring *ring, const void *item);

/* The two halves of it, for a producer with many items at once: a consumer that sleeps is told by the wake alone. */
WARN_UNUSED enum status ring_put(struct ring *ring, const void *item);
void ring_wake(struct ring *ring);

/* Consumer: copies the oldest item out; false when empty. */
bool ring_pop(struct ring *ring, void *out_item);

/* Consumer: returns when there is an item (true) or after timeout_ms (false); -1 waits for ever. */
bool ring_wait(struct ring *ring, int timeout_ms);

/* Consumer in an event loop that watches ring->event_fd: call before going back to sleep, after popping everything.
 * True: the next push makes event_fd readable. False: something came meanwhile, pop again. */
WARN_UNUSED bool ring_arm(struct ring *ring);

/* Consumer in an event loop, once event_fd is readable: until the next arm pushes stay silent. */
void ring_disarm(struct ring *ring);

/* Items now in the ring, as seen by one thread while others work. */
size_t ring_n_items(const struct ring *ring);
size_t ring_max_items(const struct ring *ring);

#endif
