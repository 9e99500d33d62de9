/* backing: a thread that has the system back the KV pools with pages ahead of use, so that no step waits for pages.
 *
 * While the engine rests it soon has a good part beyond the used blocks backed, then the whole pool, little by little;
 * beside steps only when blocks come into use for the first time close to the end of what is backed. All with low
 * priority, so that it takes the cores that nobody else wants.
 * Thread: the engine's, but for the helper's own fields.   Memory: fixed.   The stores are borrowed, and must outlive
 * backing_stop. */
#ifndef KVICK_ENGINE_BACKING_H
#define KVICK_ENGINE_BACKING_H

#include <stdatomic.h>

#include "base/ring.h"
#include "base/thread.h"
#include "kvcache/group_store.h"
#include "kvcache/kv_groups.h"

struct backing {
    struct thread thread;
    bool is_started;
    struct group_store *store;                      /* the helper alone has its blocks backed */
    struct ring wake;                               /* of bytes that say nothing */
    atomic_bool must_end, is_resting, is_calm;      /* relaxed: what they tell is not urgent */
    atomic_size_t used_bytes[KV_LAYERS_MAX_GROUPS]; /* of each group, by blocks that were ever taken; relaxed */
    size_t told_bytes[KV_LAYERS_MAX_GROUPS];        /* the engine's: what it last woke the helper for */
};

/* Errors: STATUS_NOMEM, STATUS_LIMIT (no thread or no descriptor to be had); it may then be stopped. */
WARN_UNUSED enum status backing_start(struct backing *backing, struct group_store *store);

/* Returns within the time of one piece (block_store_back). */
void backing_stop(struct backing *backing);

/* Whether the engine has nothing to do. */
void backing_rest(struct backing *backing, bool is_resting);

/* After blocks have been taken. */
void backing_note_use(struct backing *backing, const struct kv_groups *groups);

/* All that is soon used is backed: what is left takes hardly any time of any core. */
bool backing_is_calm(const struct backing *backing);

#endif
