/* arena: memory that is freed whole, for one request or one step.
 *
 * Thread: one owner.   Memory: one piece reserved at init; never more than max_bytes. */
#ifndef KVICK_BASE_ARENA_H
#define KVICK_BASE_ARENA_H

#include <stddef.h>

#include "base/status.h"

struct arena {
    char *start;
    size_t max_bytes;
    size_t used_bytes;
};

WARN_UNUSED enum status arena_init(struct arena *arena, size_t max_bytes);
void arena_deinit(struct arena *arena);

/* Uninitialized memory aligned to 64 bytes, valid until reset; NULL when n_bytes do not fit any more. */
WARN_UNUSED void *arena_alloc(struct arena *arena, size_t n_bytes);

void arena_reset(struct arena *arena);

#endif
