#include "engine/top_select.h"

#include <math.h>
#include <stdbool.h>

#define LANES 16
#define BLOCK 1024 /* values whose maximum is kept: the index is looked for in one block alone */

/* ---- maximum ---- */

/* Of n values, -INFINITY if none is larger: lanes keep their maximum when the other value is NaN. */
static float max_of(const float *values, int n) {
    float lanes[LANES], max;
    int i = 0;
    for (int lane = 0; lane < LANES; lane++) lanes[lane] = -INFINITY;
    for (; i + LANES <= n; i += LANES)
        for (int lane = 0; lane < LANES; lane++)
            lanes[lane] = values[i + lane] > lanes[lane] ? values[i + lane] : lanes[lane];
    max = lanes[0];
    for (int lane = 1; lane < LANES; lane++) max = lanes[lane] > max ? lanes[lane] : max;
    for (; i < n; i++) max = values[i] > max ? values[i] : max;
    return max;
}

uint32_t top_select_max(const float *values, int n) {
    float max = -INFINITY;
    int first = 0;
    for (int i = 0; i < n; i += BLOCK) {
        float block_max = max_of(values + i, n - i < BLOCK ? n - i : BLOCK);
        if (!(block_max > max)) continue;
        max = block_max;
        first = i;
    }
    for (int i = first; i < n; i++)
        if (values[i] == max) return (uint32_t)i; /* with nothing above -INFINITY the first of those */
    return 0;
}

/* ---- heaps ---- */

static bool is_before(const float *values, uint32_t a, uint32_t b) {
    return values[a] > values[b] || (values[a] == values[b] && a < b);
}

/* is_largest_on_top chooses the heap's direction. */
static void sift_down(const float *values, uint32_t *heap, int n, int at, bool is_largest_on_top) {
    for (;;) {
        int top = at, left = 2 * at + 1;
        for (int child = left; child <= left + 1 && child < n; child++)
            if (is_before(values, heap[child], heap[top]) == is_largest_on_top) top = child;
        if (top == at) return;
        uint32_t swapped = heap[at];
        heap[at] = heap[top];
        heap[top] = swapped;
        at = top;
    }
}

static void heapify(const float *values, uint32_t *ids, int n, bool is_largest_on_top) {
    for (int i = n / 2 - 1; i >= 0; i--) sift_down(values, ids, n, i, is_largest_on_top);
}

static uint32_t pop(const float *values, uint32_t *ids, int n, bool is_largest_on_top) {
    uint32_t top = ids[0];
    ids[0] = ids[n - 1];
    ids[n - 1] = top;
    sift_down(values, ids, n - 1, 0, is_largest_on_top);
    return top;
}

void top_select_heapify(const float *values, uint32_t *ids, int n) {
    heapify(values, ids, n, true);
}

uint32_t top_select_pop(const float *values, uint32_t *ids, int n) {
    return pop(values, ids, n, true);
}

/* ---- the k largest ---- */

int top_select(const float *values, int n, int k, uint32_t *out_ids) {
    int n_held = 0, i = 0;
    for (; i < n && n_held < k; i++)
        if (!isnan(values[i])) out_ids[n_held++] = (uint32_t)i;
    heapify(values, out_ids, n_held, false);
    /* The worst of the held is on top. A later value must be larger to displace it: of equals the lower id stays. */
    while (i < n) {
        int n_group = n - i < LANES ? n - i : LANES;
        float worst = values[out_ids[0]];
        bool is_any = false;
        for (int lane = 0; lane < n_group; lane++) is_any |= values[i + lane] > worst;
        for (int lane = 0; is_any && lane < n_group; lane++) {
            if (!(values[i + lane] > values[out_ids[0]])) continue;
            out_ids[0] = (uint32_t)(i + lane);
            sift_down(values, out_ids, n_held, 0, false);
        }
        i += n_group;
    }
    for (int left = n_held; left > 1; left--) pop(values, out_ids, left, false);
    return n_held;
}
