#include "tokenizer/merge.h"

#include "base/mem.h"

void merge_init(struct merge *merge) {
    *merge = (struct merge){0};
}

void merge_deinit(struct merge *merge) {
    mem_free(merge->symbols);
    mem_free(merge->heap);
    merge_init(merge);
}

enum status merge_reserve(struct merge *merge, size_t n_symbols) {
    if (n_symbols <= merge->cap_symbols) return STATUS_OK;
    size_t cap = n_symbols < 64 ? 64 : n_symbols + n_symbols / 4;
    struct merge_symbol *symbols = mem_resize_array(merge->symbols, cap, sizeof *symbols);
    if (!symbols) return STATUS_NOMEM;
    merge->symbols = symbols;
    /* At most cap - 1 pairs at the start, and each of at most cap - 1 merges takes one key out and puts two in. */
    uint64_t *heap = mem_resize_array(merge->heap, 2 * cap, sizeof *heap);
    if (!heap) return STATUS_NOMEM;
    merge->heap = heap;
    merge->cap_symbols = cap;
    return STATUS_OK;
}

/* Four children a node: half the depth, and so half the cache misses, of a binary heap. */
static void heap_push(struct merge *merge, uint64_t key) {
    uint64_t *heap = merge->heap;
    size_t i = merge->n_heap++;
    while (i > 0) {
        size_t parent = (i - 1) / 4;
        if (heap[parent] <= key) break;
        heap[i] = heap[parent];
        i = parent;
    }
    heap[i] = key;
}

static uint64_t heap_pop(struct merge *merge) {
    uint64_t *heap = merge->heap, top = heap[0], last = heap[--merge->n_heap];
    size_t n = merge->n_heap, i = 0;
    for (;;) {
        size_t first = 4 * i + 1, end = first + 4 < n ? first + 4 : n;
        if (first >= n) break;
        size_t least = first;
        for (size_t child = first + 1; child < end; child++)
            if (heap[child] < heap[least]) least = child;
        if (heap[least] >= last) break;
        heap[i] = heap[least];
        i = least;
    }
    if (n) heap[i] = last;
    return top;
}

/* Looks the pair (left, its next) up again; it goes to the heap if it merges. */
static void refresh_pair(struct merge *merge, uint32_t left_idx, merge_pair_fn *pair, const void *context) {
    struct merge_symbol *left = &merge->symbols[left_idx];
    left->rank = MERGE_NO_RANK;
    if (left->next == MERGE_NO_SYMBOL) return;
    left->rank = pair(context, left, &merge->symbols[left->next], &left->merged_id);
    if (left->rank != MERGE_NO_RANK) heap_push(merge, (uint64_t)left->rank << 32 | left_idx);
}

void merge_run(struct merge *merge, size_t n_symbols, merge_pair_fn *pair, const void *context) {
    struct merge_symbol *symbols = merge->symbols;
    merge->n_heap = 0;
    for (size_t i = 0; i < n_symbols; i++) {
        symbols[i].prev = i ? (uint32_t)(i - 1) : MERGE_NO_SYMBOL;
        symbols[i].next = i + 1 < n_symbols ? (uint32_t)(i + 1) : MERGE_NO_SYMBOL;
    }
    for (size_t i = 0; i < n_symbols; i++) refresh_pair(merge, (uint32_t)i, pair, context);
    while (merge->n_heap) {
        uint64_t key = heap_pop(merge);
        struct merge_symbol *left = &symbols[(uint32_t)key];
        /* A key is stale when its left symbol was swallowed or has another neighbour since. */
        if (left->rank != key >> 32) continue;
        struct merge_symbol *right = &symbols[left->next];
        left->n_bytes += right->n_bytes;
        left->id = left->merged_id;
        left->next = right->next;
        right->rank = MERGE_NO_RANK;
        if (left->next != MERGE_NO_SYMBOL) symbols[left->next].prev = (uint32_t)key;
        refresh_pair(merge, (uint32_t)key, pair, context);
        if (left->prev != MERGE_NO_SYMBOL) refresh_pair(merge, left->prev, pair, context);
    }
}
