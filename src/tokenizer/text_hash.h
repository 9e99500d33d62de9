/* text_hash: a fast 64-bit hash of short byte strings, for tables that live in one process.
 *
 * Not against chosen keys: tables of user text are bounded and only lose speed.   Thread: any. */
#ifndef KVICK_TOKENIZER_TEXT_HASH_H
#define KVICK_TOKENIZER_TEXT_HASH_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

static inline uint64_t text_hash_mix(uint64_t x) {
    x *= 0x9e3779b97f4a7c15u; /* 2^64 / golden ratio */
    return x ^ (x >> 29);
}

/* The last 1..8 bytes as a number; two overlapping loads where there are enough bytes. */
static inline uint64_t text_hash_tail(const char *p, size_t n_bytes) {
    if (n_bytes >= 4) {
        uint32_t low, high;
        memcpy(&low, p, 4);
        memcpy(&high, p + n_bytes - 4, 4);
        return (uint64_t)high << 32 | low;
    }
    const unsigned char *u = (const unsigned char *)p;
    return n_bytes ? (uint64_t)u[0] << 16 | (uint64_t)u[n_bytes / 2] << 8 | u[n_bytes - 1] : 0;
}

static inline uint64_t text_hash(const char *p, size_t n_bytes) {
    uint64_t hash = n_bytes * 0xff51afd7ed558ccdu;
    for (; n_bytes > 8; p += 8, n_bytes -= 8) {
        uint64_t word;
        memcpy(&word, p, 8);
        hash = text_hash_mix(hash ^ word);
    }
    hash = text_hash_mix(hash ^ text_hash_tail(p, n_bytes));
    return hash ^ (hash >> 32);
}

#endif
