/* kv_layers: which layers share a block table. Layers that see equally far back form a KV group.
 *
 * Group 0 holds the layers that see everything; a model without one has its farthest window there. Its blocks are never
 * given back while their sequence runs, so that every known prefix is a chain of its blocks. The other groups have one
 * window each and give back what has left it.
 * Thread: any, const once made. */
#ifndef KVICK_KVCACHE_KV_LAYERS_H
#define KVICK_KVCACHE_KV_LAYERS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

#define KV_LAYERS_MAX 256
#define KV_LAYERS_MAX_GROUPS 4

struct kv_layers {
    int n_layers, n_groups;
    int windows[KV_LAYERS_MAX_GROUPS]; /* keys that a row sees at most, itself included; 0 = all are kept */
    int n_in_group[KV_LAYERS_MAX_GROUPS];
    uint8_t group_of[KV_LAYERS_MAX];
    uint16_t place_of[KV_LAYERS_MAX]; /* of a layer among those of its group */
};

/* windows: [n_layers], 0 = all; NULL: every layer sees all. A window of max_tokens and more is none.
 * Errors: STATUS_LIMIT for more than KV_LAYERS_MAX layers or KV_LAYERS_MAX_GROUPS different windows. */
WARN_UNUSED enum status kv_layers_init(struct kv_layers *layers, int n_layers, const int *windows, int max_tokens,
                                       struct status_note *note);

#endif
