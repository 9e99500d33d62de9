#include "kvcache/kv_layers.h"

static int window_of(const int *windows, int layer, int max_tokens) {
    return windows && windows[layer] < max_tokens ? windows[layer] : 0;
}

/* A is seen farther back than b. */
static bool is_farther(int a, int b) {
    return b != 0 && (a == 0 || a > b);
}

enum status kv_layers_init(struct kv_layers *layers, int n_layers, const int *windows, int max_tokens,
                           struct status_note *note) {
    *layers = (struct kv_layers){0};
    if (n_layers < 1 || n_layers > KV_LAYERS_MAX)
        return status_fail(note, STATUS_LIMIT, "a KV cache of %d layers (at most %d)", n_layers, KV_LAYERS_MAX);
    int farthest = window_of(windows, 0, max_tokens);
    for (int i = 1; i < n_layers; i++)
        if (is_farther(window_of(windows, i, max_tokens), farthest)) farthest = window_of(windows, i, max_tokens);
    layers->n_layers = n_layers;
    layers->n_groups = 1;
    for (int i = 0; i < n_layers; i++) {
        int window = window_of(windows, i, max_tokens), group = 0;
        if (window != farthest)
            for (group = 1; group < layers->n_groups && layers->windows[group] != window;) group++;
        if (group == KV_LAYERS_MAX_GROUPS)
            return status_fail(note, STATUS_LIMIT, "layer %d has window %d, one more than %d different ones", i, window,
                               KV_LAYERS_MAX_GROUPS);
        if (group == layers->n_groups) layers->windows[layers->n_groups++] = window;
        layers->group_of[i] = (uint8_t)group;
        layers->place_of[i] = (uint16_t)layers->n_in_group[group]++;
    }
    return STATUS_OK;
}
