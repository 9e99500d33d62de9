/* seqlock: a small struct that one thread writes and others copy, without ever making the writer wait.
 *
 * The shared bytes are atomic words, so a torn copy is seen and repeated, never used.
 * Thread: one writer, any readers.   Source: H. Boehm, "Can seqlocks get along with programming language memory
 * models?", 2012. */
#ifndef KVICK_BASE_SEQLOCK_H
#define KVICK_BASE_SEQLOCK_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Words for a struct of this type. */
#define SEQLOCK_WORDS(type) ((sizeof(type) + sizeof(uint64_t) - 1) / sizeof(uint64_t))

struct seqlock {
    atomic_uint seq; /* odd while a write is under way */
};

/* words: [n_bytes / 8 rounded up] */
static inline void seqlock_write(struct seqlock *lock, _Atomic uint64_t *words, const void *from, size_t n_bytes) {
    unsigned seq = atomic_load_explicit(&lock->seq, memory_order_relaxed);
    atomic_store_explicit(&lock->seq, seq + 1, memory_order_relaxed);
    for (size_t off = 0; off < n_bytes; off += sizeof(uint64_t)) {
        uint64_t word = 0;
        size_t n = n_bytes - off < sizeof word ? n_bytes - off : sizeof word;
        memcpy(&word, (const char *)from + off, n);
        /* release: whoever sees a new word sees the odd number too */
        atomic_store_explicit(&words[off / sizeof word], word, memory_order_release);
    }
    atomic_store_explicit(&lock->seq, seq + 2, memory_order_release);
}

static inline void seqlock_read(const struct seqlock *lock, const _Atomic uint64_t *words, void *to, size_t n_bytes) {
    for (;;) {
        unsigned seq = atomic_load_explicit(&lock->seq, memory_order_acquire);
        for (size_t off = 0; off < n_bytes; off += sizeof(uint64_t)) {
            /* acquire: the number is read again after all words */
            uint64_t word = atomic_load_explicit(&words[off / sizeof word], memory_order_acquire);
            size_t n = n_bytes - off < sizeof word ? n_bytes - off : sizeof word;
            memcpy((char *)to + off, &word, n);
        }
        if (!(seq & 1) && atomic_load_explicit(&lock->seq, memory_order_relaxed) == seq) return;
    }
}

#endif
