#include "kvcache/block_pool.h"

#include "base/mem.h"

static void check_hard(const struct block_pool *pool) {
#ifdef KVICK_HARD
    const char *broken = block_pool_check(pool);
    if (broken)
        BUG("block pool: %s (%d free, %d reusable, %d held of %d)", broken, pool->n_free, pool->n_reusable,
            pool->n_held, pool->n_blocks);
#else
    (void)pool;
#endif
}

static struct block_pool_entry *entry_of(const struct block_pool *pool, block_id id) {
    if (id >= (block_id)pool->n_blocks) BUG("block %u of a pool of %d", id, pool->n_blocks);
    return &pool->entries[id];
}

static void push_free(struct block_pool *pool, block_id id) {
    struct block_pool_entry *entry = &pool->entries[id];
    entry->generation++;
    entry->next = pool->first_free;
    pool->first_free = id;
    pool->n_free++;
}

static void push_newest(struct block_pool *pool, block_id id) {
    struct block_pool_entry *entry = &pool->entries[id];
    entry->next = BLOCK_NONE;
    entry->prev = pool->newest;
    if (pool->newest == BLOCK_NONE)
        pool->oldest = id;
    else
        pool->entries[pool->newest].next = id;
    pool->newest = id;
    pool->n_reusable++;
}

static void unlink_reusable(struct block_pool *pool, block_id id) {
    struct block_pool_entry *entry = &pool->entries[id];
    if (entry->prev == BLOCK_NONE)
        pool->oldest = entry->next;
    else
        pool->entries[entry->prev].next = entry->next;
    if (entry->next == BLOCK_NONE)
        pool->newest = entry->prev;
    else
        pool->entries[entry->next].prev = entry->prev;
    pool->n_reusable--;
}

enum status block_pool_init(struct block_pool *pool, int n_blocks) {
    *pool = (struct block_pool){.first_free = BLOCK_NONE, .oldest = BLOCK_NONE, .newest = BLOCK_NONE};
    if (n_blocks < 1) return STATUS_INVALID;
    pool->entries = mem_alloc_array((size_t)n_blocks, sizeof *pool->entries);
    if (!pool->entries) return STATUS_NOMEM;
    pool->n_blocks = n_blocks;
    for (int i = n_blocks - 1; i >= 0; i--) push_free(pool, (block_id)i);
    check_hard(pool);
    return STATUS_OK;
}

void block_pool_deinit(struct block_pool *pool) {
    mem_free(pool->entries);
    *pool = (struct block_pool){.first_free = BLOCK_NONE, .oldest = BLOCK_NONE, .newest = BLOCK_NONE};
}

void block_pool_listen(struct block_pool *pool, block_pool_evict_fn *on_evict, void *owner) {
    pool->on_evict = on_evict;
    pool->evict_owner = owner;
}

static void evict_oldest(struct block_pool *pool) {
    block_id id = pool->oldest;
    unlink_reusable(pool, id);
    pool->entries[id].is_findable = false;
    push_free(pool, id);
    pool->n_evicted++;
    /* The listener may free more blocks; whatever is on top of the free list afterwards is taken. */
    if (pool->on_evict) pool->on_evict(pool->evict_owner, id);
}

enum status block_pool_take(struct block_pool *pool, int n, block_id *out_ids) {
    REQUIRE(n >= 0);
    if (n > block_pool_n_available(pool)) return STATUS_LIMIT;
    for (int i = 0; i < n; i++) {
        if (pool->n_free == 0) evict_oldest(pool);
        block_id id = pool->first_free;
        struct block_pool_entry *entry = &pool->entries[id];
        pool->first_free = entry->next;
        pool->n_free--;
        entry->n_refs = 1;
        pool->n_held++;
        if ((int)id >= pool->n_touched) pool->n_touched = (int)id + 1;
        out_ids[i] = id;
    }
    check_hard(pool);
    return STATUS_OK;
}

void block_pool_acquire(struct block_pool *pool, block_id id) {
    struct block_pool_entry *entry = entry_of(pool, id);
    if (entry->n_refs == 0) {
        if (!entry->is_findable) BUG("block %u is free and cannot be acquired", id);
        unlink_reusable(pool, id);
        pool->n_held++;
    }
    entry->n_refs++;
    REQUIRE(entry->n_refs <= INT32_MAX);
    check_hard(pool);
}

void block_pool_release(struct block_pool *pool, block_id id) {
    struct block_pool_entry *entry = entry_of(pool, id);
    if (entry->n_refs == 0) BUG("block %u is released more often than acquired", id);
    if (--entry->n_refs == 0) {
        pool->n_held--;
        if (entry->is_findable)
            push_newest(pool, id);
        else
            push_free(pool, id);
    }
    check_hard(pool);
}

void block_pool_release_all(struct block_pool *pool, int n, const block_id *ids) {
    for (int i = n - 1; i >= 0; i--) block_pool_release(pool, ids[i]);
}

void block_pool_set_findable(struct block_pool *pool, block_id id, bool is_findable) {
    struct block_pool_entry *entry = entry_of(pool, id);
    if (entry->is_findable == is_findable) return;
    if (is_findable && entry->n_refs == 0) BUG("block %u is free and cannot become findable", id);
    entry->is_findable = is_findable;
    if (entry->n_refs == 0) {
        unlink_reusable(pool, id);
        push_free(pool, id);
    }
    check_hard(pool);
}

int block_pool_n_available(const struct block_pool *pool) {
    return pool->n_free + pool->n_reusable;
}

int block_pool_n_refs(const struct block_pool *pool, block_id id) {
    return (int)entry_of(pool, id)->n_refs;
}

bool block_pool_is_findable(const struct block_pool *pool, block_id id) {
    return entry_of(pool, id)->is_findable;
}

struct block_ref block_pool_ref(const struct block_pool *pool, block_id id) {
    return (struct block_ref){.id = id, .generation = entry_of(pool, id)->generation};
}

bool block_pool_is_current(const struct block_pool *pool, struct block_ref ref) {
    return ref.id != BLOCK_NONE && entry_of(pool, ref.id)->generation == ref.generation;
}

static const char *check_free_list(const struct block_pool *pool) {
    int n = 0;
    for (block_id id = pool->first_free; id != BLOCK_NONE; id = pool->entries[id].next) {
        if (id >= (block_id)pool->n_blocks) return "the free list leads out of the pool";
        if (pool->entries[id].n_refs) return "a held block is in the free list";
        if (pool->entries[id].is_findable) return "a findable block is in the free list";
        if (++n > pool->n_free) return "the free list is longer than n_free";
    }
    return n == pool->n_free ? NULL : "the free list is shorter than n_free";
}

static const char *check_reusable_list(const struct block_pool *pool) {
    int n = 0;
    block_id prev = BLOCK_NONE;
    for (block_id id = pool->oldest; id != BLOCK_NONE; prev = id, id = pool->entries[id].next) {
        if (id >= (block_id)pool->n_blocks) return "the reusable list leads out of the pool";
        if (pool->entries[id].n_refs) return "a held block is in the reusable list";
        if (!pool->entries[id].is_findable) return "a block that cannot be found is in the reusable list";
        if (pool->entries[id].prev != prev) return "the reusable list's links disagree";
        if (++n > pool->n_reusable) return "the reusable list is longer than n_reusable";
    }
    if (pool->newest != prev) return "the reusable list's end is not its newest";
    return n == pool->n_reusable ? NULL : "the reusable list is shorter than n_reusable";
}

const char *block_pool_check(const struct block_pool *pool) {
    int n_held = 0;
    for (int i = 0; i < pool->n_blocks; i++) n_held += pool->entries[i].n_refs > 0;
    if (n_held != pool->n_held) return "n_held is not the number of held blocks";
    if (pool->n_free + pool->n_reusable + pool->n_held != pool->n_blocks)
        return "free, reusable and held blocks are not all blocks";
    const char *broken = check_free_list(pool);
    return broken ? broken : check_reusable_list(pool);
}
