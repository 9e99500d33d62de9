/* guard: memory between unmapped pages, and canaries around what a kernel may write.
 *
 * Thread: any owner.   Memory: mapped once per guard, never given back; a check lives in a process of its own. */
#ifndef KVICK_TESTS_KERNELCHECK_GUARD_H
#define KVICK_TESTS_KERNELCHECK_GUARD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct guard {
    uint8_t *begin, *end; /* usable bytes: whole pages, the pages before and behind fault */
};

enum guard_place {
    GUARD_AT_END,   /* the last byte is the last of a page, the next one faults */
    GUARD_AT_BEGIN, /* the byte in front faults */
    GUARD_SHIFTED,  /* 4 bytes past a multiple of 64 */
    GUARD_N_PLACES
};

/* Room for n_bytes at every place. */
void guard_init(struct guard *guard, size_t n_bytes);

/* Where n_bytes go; BUG if there is no room. */
void *guard_place(const struct guard *guard, size_t n_bytes, enum guard_place place);

/* As guard_place, the bytes copied from src. */
void *guard_copy(const struct guard *guard, const void *src, size_t n_bytes, enum guard_place place);

/* Fills bytes with canaries: as f32 and f16 a NaN that no instruction makes. begin is even. */
void guard_paint(void *begin, size_t n_bytes);
bool guard_is_painted(const void *begin, size_t n_bytes);
#define GUARD_CANARY_F32 0xffa5ffa5u

/* guard_place for output: painted, and the bytes around it too. */
void *guard_place_output(const struct guard *guard, size_t n_bytes, enum guard_place place);

/* False if a byte around the output was changed. */
bool guard_is_intact(const struct guard *guard, const void *output, size_t n_bytes);

#endif
