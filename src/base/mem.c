#include "base/mem.h"

#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 /* Linux 5.14; headers may be older */
#endif

/* Relaxed counters: they order nothing, tests read them when all threads are idle. */
static atomic_long n_live;
static atomic_long fail_countdown;

static int is_told_to_fail(void) {
    if (atomic_load_explicit(&fail_countdown, memory_order_relaxed) == 0) return 0;
    long left = atomic_fetch_sub_explicit(&fail_countdown, 1, memory_order_relaxed);
    if (left > 1) return 0;
    atomic_store_explicit(&fail_countdown, 1, memory_order_relaxed);
    return 1;
}

void mem_fail_from(long n) {
    atomic_store_explicit(&fail_countdown, n, memory_order_relaxed);
}

long mem_n_live(void) {
    return atomic_load_explicit(&n_live, memory_order_relaxed);
}

static void *counted(void *p) {
    if (p) atomic_fetch_add_explicit(&n_live, 1, memory_order_relaxed);
    return p;
}

void *mem_alloc(size_t n_bytes) {
    return mem_alloc_array(n_bytes, 1);
}

/* Asked here and not left to the C library: a sanitizer's ends the program instead of returning NULL. */
static int is_too_large(size_t n, size_t item_bytes) {
    return item_bytes && n > PTRDIFF_MAX / item_bytes;
}

void *mem_alloc_array(size_t n, size_t item_bytes) {
    if (is_told_to_fail() || is_too_large(n, item_bytes)) return NULL;
    if (n == 0 || item_bytes == 0) n = item_bytes = 1;
    return counted(calloc(n, item_bytes));
}

void *mem_alloc_lines(size_t n_bytes) {
    void *p = NULL;
    if (is_told_to_fail() || is_too_large(n_bytes, 1)) return NULL;
    if (posix_memalign(&p, MEM_LINE_BYTES, n_bytes ? n_bytes : 1)) return NULL;
    memset(p, 0, n_bytes);
    return counted(p);
}

void *mem_resize_array(void *old, size_t n, size_t item_bytes) {
    if (is_told_to_fail() || is_too_large(n, item_bytes)) return NULL;
    if (n == 0 || item_bytes == 0) n = item_bytes = 1;
    void *p = reallocarray(old, n, item_bytes);
    return old ? p : counted(p);
}

char *mem_strndup(const char *text, size_t n_bytes) {
    if (n_bytes == SIZE_MAX) return NULL;
    char *copy = mem_alloc(n_bytes + 1);
    if (copy && n_bytes) memcpy(copy, text, n_bytes);
    return copy;
}

char *mem_strdup(const char *text) {
    return mem_strndup(text, strlen(text));
}

void mem_free(void *p) {
    if (!p) return;
    atomic_fetch_sub_explicit(&n_live, 1, memory_order_relaxed);
    free(p);
}

static size_t whole_huge_pages(size_t n_bytes) {
    return (n_bytes + MEM_HUGE_PAGE_BYTES - 1) & ~(MEM_HUGE_PAGE_BYTES - 1);
}

void *mem_map_pages(size_t n_bytes) {
    if (n_bytes == 0 || n_bytes > SIZE_MAX / 4 || is_told_to_fail()) return NULL;
    size_t need = whole_huge_pages(n_bytes), got = need + MEM_HUGE_PAGE_BYTES;
    char *raw = mmap(NULL, got, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (raw == MAP_FAILED) return NULL;
    char *start = (char *)(((uintptr_t)raw + MEM_HUGE_PAGE_BYTES - 1) & ~(uintptr_t)(MEM_HUGE_PAGE_BYTES - 1));
    size_t head = (size_t)(start - raw), tail = got - head - need;
    if (head) munmap(raw, head);
    if (tail) munmap(start + need, tail);
    if (n_bytes > MEM_HUGE_PAGE_BYTES / 2)
        madvise(start, need, MADV_HUGEPAGE); /* advice: without it everything works, only slower */
    return counted(start);
}

bool mem_back_pages(void *p, size_t n_bytes) {
    return madvise(p, n_bytes, MADV_POPULATE_WRITE) == 0;
}

void mem_unmap_pages(void *p, size_t n_bytes) {
    if (!p) return;
    atomic_fetch_sub_explicit(&n_live, 1, memory_order_relaxed);
    munmap(p, whole_huge_pages(n_bytes));
}
