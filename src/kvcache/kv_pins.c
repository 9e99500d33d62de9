#include "kvcache/kv_pins.h"

#include "base/mem.h"

static struct block_pool *pool_of(const struct kv_pins *pins, int group) {
    return &pins->groups->groups[group].pool;
}

/* ---- life ---- */

static int max_pinned(const struct kv_groups *groups, int group, int max_tokens, int max_rows) {
    int n_blocks = groups->groups[group].pool.n_blocks, n = n_blocks / KV_PINS_SHARE;
    int n_left = n_blocks - kv_groups_n_peak(groups, group, max_tokens, max_rows);
    if (n_left < n) n = n_left;
    return n > 0 ? n : 0;
}

enum status kv_pins_init(struct kv_pins *pins, struct kv_groups *groups, int max_tokens, int max_rows) {
    *pins = (struct kv_pins){.groups = groups,
                             .max_table_blocks = (max_tokens + groups->block_tokens - 1) / groups->block_tokens};
    for (int g = 0; g < groups->n_groups; g++) {
        pins->max_pinned[g] = groups->has_index ? max_pinned(groups, g, max_tokens, max_rows) : 0;
        pins->n_of_block[g] = mem_alloc_array((size_t)pool_of(pins, g)->n_blocks, sizeof *pins->n_of_block[g]);
        if (!pins->n_of_block[g]) return STATUS_NOMEM;
        for (int i = 0; i < KV_PINS_MAX; i++) {
            pins->pins[i].blocks[g] = mem_alloc_array((size_t)pins->max_table_blocks, sizeof(block_id));
            if (!pins->pins[i].blocks[g]) return STATUS_NOMEM;
        }
    }
    return STATUS_OK;
}

/* Ends of prefixes first, so that they age before their beginnings. */
static void end(struct kv_pins *pins, struct kv_pin *pin) {
    for (int g = 0; g < pins->groups->n_groups; g++)
        for (int b = pin->n_blocks - 1; b >= 0; b--) {
            block_id block = pin->blocks[g][b];
            if (block == BLOCK_NONE) continue;
            if (--pins->n_of_block[g][block] == 0) pins->n_pinned[g]--;
            block_pool_release(pool_of(pins, g), block);
        }
    pin->until_ns = 0;
    pin->n_blocks = 0;
}

void kv_pins_deinit(struct kv_pins *pins) {
    for (int i = 0; i < KV_PINS_MAX; i++) {
        if (pins->pins[i].until_ns) end(pins, &pins->pins[i]);
        for (int g = 0; g < KV_LAYERS_MAX_GROUPS; g++) mem_free(pins->pins[i].blocks[g]);
    }
    for (int g = 0; g < KV_LAYERS_MAX_GROUPS; g++) mem_free(pins->n_of_block[g]);
    *pins = (struct kv_pins){0};
}

/* ---- pinning ---- */

/* The pin of the owner that ends in the same block of group 0, which stands for its whole prefix; else a free one. */
static struct kv_pin *place_for(struct kv_pins *pins, block_id last, int n_blocks, uint64_t owner) {
    struct kv_pin *unused = NULL;
    for (int i = 0; i < KV_PINS_MAX; i++) {
        struct kv_pin *pin = &pins->pins[i];
        if (!pin->until_ns)
            unused = pin;
        else if (pin->owner == owner && pin->n_blocks == n_blocks && pin->blocks[0][n_blocks - 1] == last)
            return pin;
    }
    return unused;
}

/* The first entry of a group that a row behind n_blocks blocks may load, of those that the table still has. */
static int first_of(const struct kv_pins *pins, const struct kv_table *table, int group, int n_blocks) {
    int first = kv_groups_first_block(pins->groups, group, n_blocks * pins->groups->block_tokens);
    return first < table->first[group] ? table->first[group] : first;
}

static bool fits(const struct kv_pins *pins, const struct kv_table *table, int n_blocks) {
    for (int g = 0; g < pins->groups->n_groups; g++) {
        int n_new = 0;
        for (int b = first_of(pins, table, g, n_blocks); b < n_blocks; b++)
            n_new += pins->n_of_block[g][table->blocks[g][b]] == 0;
        if (pins->n_pinned[g] + n_new > pins->max_pinned[g]) return false;
    }
    return true;
}

enum status kv_pins_add(struct kv_pins *pins, const struct kv_table *table, int n_tokens, uint64_t owner,
                        int64_t until_ns, int *out_n_tokens) {
    int n_blocks = n_tokens / pins->groups->block_tokens;
    REQUIRE(until_ns > 0);
    if (n_blocks > table->n_published) n_blocks = table->n_published;
    if (!table->has_cache || !pins->groups->has_index) n_blocks = 0;
    *out_n_tokens = n_blocks * pins->groups->block_tokens;
    if (n_blocks == 0) return STATUS_OK;
    struct kv_pin *pin = place_for(pins, table->blocks[0][n_blocks - 1], n_blocks, owner);
    if (!pin) return STATUS_LIMIT;
    if (pin->until_ns) {
        pin->until_ns = until_ns;
        return STATUS_OK;
    }
    if (!fits(pins, table, n_blocks)) return STATUS_LIMIT;
    pin->owner = owner;
    pin->until_ns = until_ns;
    pin->n_blocks = n_blocks;
    for (int g = 0; g < pins->groups->n_groups; g++) {
        int first = first_of(pins, table, g, n_blocks);
        for (int b = 0; b < n_blocks; b++) {
            block_id block = b < first ? BLOCK_NONE : table->blocks[g][b];
            pin->blocks[g][b] = block;
            if (block == BLOCK_NONE) continue;
            block_pool_acquire(pool_of(pins, g), block);
            if (pins->n_of_block[g][block]++ == 0) pins->n_pinned[g]++;
        }
    }
    return STATUS_OK;
}

void kv_pins_expire(struct kv_pins *pins, int64_t now_ns) {
    for (int i = 0; i < KV_PINS_MAX; i++)
        if (pins->pins[i].until_ns && pins->pins[i].until_ns <= now_ns) end(pins, &pins->pins[i]);
}

int64_t kv_pins_next_ns(const struct kv_pins *pins) {
    int64_t next_ns = 0;
    for (int i = 0; i < KV_PINS_MAX; i++) {
        int64_t until_ns = pins->pins[i].until_ns;
        if (until_ns && (!next_ns || until_ns < next_ns)) next_ns = until_ns;
    }
    return next_ns;
}

/* ---- check ---- */

static const char *check_group(const struct kv_pins *pins, int group) {
    const struct block_pool *pool = pool_of(pins, group);
    int n_pinned = 0, n_uses = 0;
    for (int i = 0; i < pool->n_blocks; i++) {
        int n = pins->n_of_block[group][i];
        if (n > block_pool_n_refs(pool, (block_id)i)) return "a pinned block is not held by its pins";
        if (n && !block_pool_is_findable(pool, (block_id)i)) return "a pinned block cannot be found";
        n_pinned += n > 0;
        n_uses += n;
    }
    if (n_pinned != pins->n_pinned[group]) return "n_pinned is not the number of pinned blocks";
    if (n_pinned > pins->max_pinned[group]) return "more blocks are pinned than may be";
    for (int i = 0; i < KV_PINS_MAX; i++)
        for (int b = 0; b < pins->pins[i].n_blocks; b++) n_uses -= pins->pins[i].blocks[group][b] != BLOCK_NONE;
    return n_uses == 0 ? NULL : "the pins and the counts of their blocks disagree";
}

const char *kv_pins_check(const struct kv_pins *pins) {
    for (int g = 0; g < pins->groups->n_groups; g++) {
        const char *broken = check_group(pins, g);
        if (broken) return broken;
    }
    return NULL;
}
