/* mem: the only way to the heap, so that tests can count and fail it.
 *
 * Thread: any.   Errors: NULL when memory is out, the product wraps, or a test asked for failure. */
#ifndef KVICK_BASE_MEM_H
#define KVICK_BASE_MEM_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

/* All return zeroed memory aligned to 16 bytes; free with mem_free. n == 0 gives a unique pointer. */
WARN_UNUSED void *mem_alloc(size_t n_bytes);
WARN_UNUSED void *mem_alloc_array(size_t n, size_t item_bytes);

/* The same for what has members on cache lines of their own (_Alignas(64)): aligned to MEM_LINE_BYTES. */
WARN_UNUSED void *mem_alloc_lines(size_t n_bytes);

/* Grows or shrinks to n items; new bytes are not zeroed. On NULL the old memory is unchanged and still the caller's. */
WARN_UNUSED void *mem_resize_array(void *old, size_t n, size_t item_bytes);

WARN_UNUSED char *mem_strdup(const char *text);
WARN_UNUSED char *mem_strndup(const char *text, size_t n_bytes);

void mem_free(void *p);

#define MEM_LINE_BYTES 64
#define MEM_HUGE_PAGE_BYTES ((size_t)2 << 20)

/* Zeroed pages for pools and packed weights, aligned to 2 MiB and, from 1 MiB on, advised as huge; release with the
 * same n_bytes. */
WARN_UNUSED void *mem_map_pages(size_t n_bytes);
void mem_unmap_pages(void *p, size_t n_bytes);

/* Has the system back [p, p + n_bytes) of mapped pages now instead of at their first use; bytes already there stay.
 * p: a multiple of the page size. False if the system cannot: they are backed at their first use then. */
bool mem_back_pages(void *p, size_t n_bytes);

/* Tests: the n-th allocation from now (1 = the next) and all after it fail; 0 ends that. */
void mem_fail_from(long n);

/* Tests: allocations not yet freed. */
long mem_n_live(void);

#endif
