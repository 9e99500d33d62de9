#include "base/arena.h"

#include "base/mem.h"

#define ALIGN_BYTES 64u

enum status arena_init(struct arena *arena, size_t max_bytes) {
    *arena = (struct arena){.start = mem_map_pages(max_bytes)};
    if (!arena->start) return STATUS_NOMEM;
    arena->max_bytes = max_bytes;
    return STATUS_OK;
}

void arena_deinit(struct arena *arena) {
    mem_unmap_pages(arena->start, arena->max_bytes);
    *arena = (struct arena){0};
}

void *arena_alloc(struct arena *arena, size_t n_bytes) {
    size_t left = arena->max_bytes - arena->used_bytes;
    if (!arena->start || n_bytes > left) return NULL;
    void *p = arena->start + arena->used_bytes;
    size_t padded = n_bytes + (ALIGN_BYTES - n_bytes % ALIGN_BYTES) % ALIGN_BYTES;
    arena->used_bytes += padded < left ? padded : left;
    return p;
}

void arena_reset(struct arena *arena) {
    arena->used_bytes = 0;
}
