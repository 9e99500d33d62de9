#include "engine/backing.h"

#include "base/mem.h"

#define AHEAD_BYTES (8 * (size_t)MEM_HUGE_PAGE_BYTES) /* of a group, beside steps */

/* ---- the helper ---- */

/* One piece of the first group that wants one; false if none does. */
static bool back_next(struct backing *backing) {
    bool is_resting = atomic_load_explicit(&backing->is_resting, memory_order_relaxed);
    for (int g = 0; g < backing->store->layers.n_groups; g++) {
        struct block_store *store = &backing->store->stores[g];
        size_t wanted = atomic_load_explicit(&backing->wanted_bytes[g], memory_order_relaxed);
        if (store->backed_bytes >= store->layout.pool_bytes || (!is_resting && store->backed_bytes >= wanted)) continue;
        block_store_back(store);
        return true;
    }
    if (is_resting) atomic_store_explicit(&backing->is_done, true, memory_order_relaxed);
    return false;
}

static void helper_main(void *arg) {
    struct backing *backing = arg;
    char nothing;
    thread_give_way();
    while (!atomic_load_explicit(&backing->must_end, memory_order_relaxed)) {
        if (back_next(backing)) continue;
        ring_wait(&backing->wake, -1);
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
    if (is_resting && !backing_is_done(backing)) wake(backing);
}

void backing_note_use(struct backing *backing, const struct kv_groups *groups) {
    for (int g = 0; g < groups->n_groups; g++) {
        const struct kv_layout *layout = &backing->store->stores[g].layout;
        size_t wanted = (size_t)groups->groups[g].pool.n_touched * layout->stride_bytes + AHEAD_BYTES;
        if (wanted < backing->told_bytes[g] + MEM_HUGE_PAGE_BYTES) continue;
        backing->told_bytes[g] = wanted;
        atomic_store_explicit(&backing->wanted_bytes[g], wanted, memory_order_relaxed);
        if (!backing_is_done(backing)) wake(backing);
    }
}

bool backing_is_done(const struct backing *backing) {
    return atomic_load_explicit(&backing->is_done, memory_order_relaxed);
}
