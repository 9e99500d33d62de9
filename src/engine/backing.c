#include "engine/backing.h"

#include <stdint.h>

#include "base/mem.h"

/* Beyond the used blocks of a group. */
#define STEP_AHEAD_BYTES ((size_t)16 << 20)
#define REST_AHEAD_BYTES ((size_t)512 << 20)
/* Between pieces that nobody needs soon: writing gigabytes empties the caches that steps live on. */
#define PAUSE_MS 20

/* ---- the helper ---- */

/* Has a piece backed of the first group with less than so much beyond its used blocks; false if there is none. */
static bool back_next(struct backing *backing, size_t ahead_bytes) {
    for (int g = 0; g < backing->store->layers.n_groups; g++) {
        struct block_store *store = &backing->store->stores[g];
        size_t used = atomic_load_explicit(&backing->used_bytes[g], memory_order_relaxed);
        if (store->backed_bytes >= store->layout.pool_bytes) continue;
        if (store->backed_bytes >= used && store->backed_bytes - used >= ahead_bytes) continue;
        block_store_back(store);
        return true;
    }
    return false;
}

static void helper_main(void *arg) {
    struct backing *backing = arg;
    char nothing;
    thread_give_way();
    while (!atomic_load_explicit(&backing->must_end, memory_order_relaxed)) {
        bool is_resting = atomic_load_explicit(&backing->is_resting, memory_order_relaxed);
        if (back_next(backing, is_resting ? REST_AHEAD_BYTES : STEP_AHEAD_BYTES)) continue;
        if (is_resting) atomic_store_explicit(&backing->is_calm, true, memory_order_relaxed);
        bool has_more = is_resting && back_next(backing, SIZE_MAX);
        ring_wait(&backing->wake, has_more ? PAUSE_MS : -1);
        while (ring_pop(&backing->wake, &nothing)) continue;
    }
}

/* ---- the engine's side ---- */

static void wake(struct backing *backing) {
    char nothing = 0;
    enum status is_awake = ring_push(&backing->wake, &nothing); /* full: it is about to look anyway */
    (void)is_awake;
}

enum status backing_start(struct backing *backing, struct group_store *store) {
    *backing = (struct backing){.store = store, .wake.event_fd = -1};
    enum status status = ring_init(&backing->wake, 1, 2);
    if (!status) status = thread_start(&backing->thread, "kv-backing", helper_main, backing);
    backing->is_started = !status;
    return status;
}

void backing_stop(struct backing *backing) {
    if (backing->is_started) {
        atomic_store_explicit(&backing->must_end, true, memory_order_relaxed);
        wake(backing);
        thread_join(&backing->thread);
        backing->is_started = false;
    }
    if (backing->store) ring_deinit(&backing->wake);
    backing->store = NULL;
}

void backing_rest(struct backing *backing, bool is_resting) {
    atomic_store_explicit(&backing->is_resting, is_resting, memory_order_relaxed);
    if (is_resting) wake(backing);
}

void backing_note_use(struct backing *backing, const struct kv_groups *groups) {
    for (int g = 0; g < groups->n_groups; g++) {
        const struct kv_layout *layout = &backing->store->stores[g].layout;
        size_t used = (size_t)groups->groups[g].pool.n_touched * layout->stride_bytes;
        if (used < backing->told_bytes[g] + MEM_HUGE_PAGE_BYTES) continue;
        backing->told_bytes[g] = used;
        atomic_store_explicit(&backing->used_bytes[g], used, memory_order_relaxed);
        wake(backing);
    }
}

bool backing_is_calm(const struct backing *backing) {
    return atomic_load_explicit(&backing->is_calm, memory_order_relaxed);
}
