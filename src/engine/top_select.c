#include "engine/top_select.h"

#include <math.h>

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

/* ---- groups ---- */

static bool any_above(const float values[LANES], float bound) {
    int n = 0; /* a sum, not a jump: one comparison for all lanes */
    for (int lane = 0; lane < LANES; lane++) n += values[lane] > bound;
    return n > 0;
}

bool top_select_any_at_least(const float values[LANES], float bound) {
    int n = 0;
    for (int lane = 0; lane < LANES; lane++) n += values[lane] >= bound;
    return n > 0;
}

/* ---- a heap with the worst on top ---- */

static bool is_before(const float *values, uint32_t a, uint32_t b) {
    return values[a] > values[b] || (values[a] == values[b] && a < b);
}

static void sift_down(const float *values, uint32_t *heap, int n, int at) {
    for (;;) {
        int top = at, left = 2 * at + 1;
        for (int child = left; child <= left + 1 && child < n; child++)
            if (is_before(values, heap[top], heap[child])) top = child;
        if (top == at) return;
        uint32_t swapped = heap[at];
        heap[at] = heap[top];
        heap[top] = swapped;
        at = top;
    }
}

static void heapify(const float *values, uint32_t *ids, int n) {
    for (int i = n / 2 - 1; i >= 0; i--) sift_down(values, ids, n, i);
}

/* The worst goes to the end, again and again. */
static void sort_heap(const float *values, uint32_t *ids, int n) {
    for (int last = n - 1; last > 0; last--) {
        uint32_t worst = ids[0];
        ids[0] = ids[last];
        ids[last] = worst;
        sift_down(values, ids, last, 0);
    }
}

void top_select_sort(const float *values, uint32_t *ids, int n) {
    heapify(values, ids, n);
    sort_heap(values, ids, n);
}

/* ---- the k largest ---- */

/* A later value must be larger to displace the worst of the held: of equals the lower id stays. */
static void offer(const float *values, uint32_t *heap, int n_held, int from, int to) {
    for (int i = from; i < to; i++) {
        if (!(values[i] > values[heap[0]])) continue;
        heap[0] = (uint32_t)i;
        sift_down(values, heap, n_held, 0);
    }
}

int top_select(const float *values, int n, int k, uint32_t *out_ids) {
    int n_held = 0, i = 0;
    for (; i < n && n_held < k; i++)
        if (!isnan(values[i])) out_ids[n_held++] = (uint32_t)i;
    heapify(values, out_ids, n_held);
    for (; i + LANES <= n; i += LANES)
        if (any_above(values + i, values[out_ids[0]])) offer(values, out_ids, n_held, i, i + LANES);
    if (i < n) offer(values, out_ids, n_held, i, n);
    sort_heap(values, out_ids, n_held);
    return n_held;
}
