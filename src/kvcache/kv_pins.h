/* kv_pins: prefixes that stay findable until their time ends, whoever else needs blocks.
 *
 * A pin holds references on the published blocks of a sequence: all of group 0, and those of windowed groups that a
 * continuation loads. To the pool they are held, so nothing evicts them; their last release makes them reusable.
 * In every group at most max_pinned blocks are pinned, a block of several pins counting once: a share of the pool that
 * leaves room for a request of the longest kind, so that whoever is admitted can still run.
 * Thread: engine.   Memory: arrays sized at init, none afterwards. The groups are borrowed and outlive the pins.
 * Invariant: kv_pins_check. */
#ifndef KVICK_KVCACHE_KV_PINS_H
#define KVICK_KVCACHE_KV_PINS_H

#include "kvcache/kv_table.h"

#define KV_PINS_MAX 64
#define KV_PINS_SHARE 4 /* one block of so many may be pinned */

struct kv_pin {
    int64_t until_ns; /* 0: free */
    uint64_t owner;
    int n_blocks;                           /* of the table; a group's first ones may be BLOCK_NONE */
    block_id *blocks[KV_LAYERS_MAX_GROUPS]; /* [max_table_blocks] */
};

struct kv_pins {
    struct kv_groups *groups;
    int max_table_blocks;
    struct kv_pin pins[KV_PINS_MAX];
    uint16_t *n_of_block[KV_LAYERS_MAX_GROUPS]; /* [the pool's n_blocks] pins that hold it */
    int n_pinned[KV_LAYERS_MAX_GROUPS], max_pinned[KV_LAYERS_MAX_GROUPS];
};

/* max_tokens: of one request; max_rows: of a step. Errors: STATUS_NOMEM; pins may then be passed to deinit. */
WARN_UNUSED enum status kv_pins_init(struct kv_pins *pins, struct kv_groups *groups, int max_tokens, int max_rows);

/* Ends all pins. */
void kv_pins_deinit(struct kv_pins *pins);

/* Pins the full, published blocks of the table's first n_tokens until until_ns (> 0). A pin of the owner on the same
 * prefix gets this time instead. out_n_tokens: how many of them are pinned, 0 if none is a full block.
 * Errors: STATUS_LIMIT if too many blocks or prefixes would be pinned; nothing has changed then. */
WARN_UNUSED enum status kv_pins_add(struct kv_pins *pins, const struct kv_table *table, int n_tokens, uint64_t owner,
                                    int64_t until_ns, int *out_n_tokens);

/* Ends the pins whose time has come. */
void kv_pins_expire(struct kv_pins *pins, int64_t now_ns);

/* When the next one ends; 0: there is none. */
int64_t kv_pins_next_ns(const struct kv_pins *pins);

/* NULL if the invariants hold, else the one that is broken. */
WARN_UNUSED const char *kv_pins_check(const struct kv_pins *pins);

#endif
