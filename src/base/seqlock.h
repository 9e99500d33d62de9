/* seqlock: a small struct that one thread writes and others copy without ever making it wait.
 *
 * The reader copies, then asks whether the copy is whole. The copied struct must be plain data.
 * Source: H. Boehm, "Can seqlocks get along with programming language memory models?", 2012. */
#ifndef KVICK_BASE_SEQLOCK_H
#define KVICK_BASE_SEQLOCK_H

#include <stdatomic.h>
#include <stdbool.h>

struct seqlock {
    atomic_uint seq; /* odd while a write is under way */
};

static inline void seqlock_write_begin(struct seqlock *lock) {
    unsigned seq = atomic_load_explicit(&lock->seq, memory_order_relaxed);
    atomic_store_explicit(&lock->seq, seq + 1, memory_order_relaxed);
    atomic_thread_fence(memory_order_release); /* the odd number is seen before any new byte */
}

static inline void seqlock_write_end(struct seqlock *lock) {
    unsigned seq = atomic_load_explicit(&lock->seq, memory_order_relaxed);
    atomic_store_explicit(&lock->seq, seq + 1, memory_order_release);
}

static inline unsigned seqlock_read_begin(const struct seqlock *lock) {
    unsigned seq;
    do seq = atomic_load_explicit(&lock->seq, memory_order_acquire);
    while (seq & 1);
    return seq;
}

static inline bool seqlock_read_is_good(const struct seqlock *lock, unsigned ticket) {
    atomic_thread_fence(memory_order_acquire); /* the copy is read before the number */
    return atomic_load_explicit(&lock->seq, memory_order_relaxed) == ticket;
}

#endif
