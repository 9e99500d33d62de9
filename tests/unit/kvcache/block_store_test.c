#include "kvcache/block_store.h"

#include <stdint.h>
#include <string.h>

#include "base/mem.h"
#include "support/test.h"

#define N_LAYERS 3
#define N_HEADS 2
#define N_BLOCKS 5

static void open_store(struct block_store *store) {
    struct kv_layout layout;
    assert_int_equal(kv_layout_init(&layout, DTYPE_F16, N_LAYERS, N_HEADS, 32, 16, N_BLOCKS, NULL), STATUS_OK);
    assert_int_equal(block_store_init(store, &layout), STATUS_OK);
}

/* A byte that tells layer, block, head, K or V and place apart. */
static uint8_t byte_at(int layer, uint32_t block, int head, int part, size_t i) {
    return (uint8_t)(layer * 89 + (int)block * 37 + head * 17 + part * 7 + (int)(i * 31) + (int)(i >> 8));
}

static void fill(struct block_store *store) {
    size_t n_bytes = store->layout.head_bytes / 2;
    for (int layer = 0; layer < N_LAYERS; layer++)
        for (uint32_t block = 0; block < N_BLOCKS; block++)
            for (int head = 0; head < N_HEADS; head++)
                for (size_t i = 0; i < n_bytes; i++) {
                    ((uint8_t *)block_store_k(store, layer, block, head))[i] = byte_at(layer, block, head, 0, i);
                    ((uint8_t *)block_store_v(store, layer, block, head))[i] = byte_at(layer, block, head, 1, i);
                }
}

/* All blocks hold their own bytes, but block `copied` those of `source`. */
static void expect(const struct block_store *store, uint32_t source, uint32_t copied) {
    size_t n_bytes = store->layout.head_bytes / 2;
    for (int layer = 0; layer < N_LAYERS; layer++)
        for (uint32_t block = 0; block < N_BLOCKS; block++)
            for (int head = 0; head < N_HEADS; head++)
                for (size_t i = 0; i < n_bytes; i++) {
                    uint32_t owner = block == copied ? source : block;
                    const uint8_t *k = block_store_k(store, layer, block, head);
                    const uint8_t *v = block_store_v(store, layer, block, head);
                    assert_int_equal(k[i], byte_at(layer, owner, head, 0, i));
                    assert_int_equal(v[i], byte_at(layer, owner, head, 1, i));
                }
}

static void a_new_store_is_zero_and_all_of_it_can_be_used(void **state) {
    (void)state;
    struct block_store store;
    open_store(&store);
    for (size_t i = 0; i < store.layout.pool_bytes; i++) assert_int_equal(store.bytes[i], 0);
    fill(&store);
    expect(&store, 0, 0);
    block_store_deinit(&store);
    assert_null(store.bytes);
}

static void a_copy_takes_all_layers_and_nothing_else(void **state) {
    (void)state;
    static const uint32_t pairs[][2] = {{1, 3}, {3, 1}, {0, 4}, {4, 0}, {2, 2}};
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++) {
        struct block_store store;
        open_store(&store);
        fill(&store);
        block_store_copy(&store, pairs[i][0], pairs[i][1]);
        expect(&store, pairs[i][0], pairs[i][1]);
        block_store_deinit(&store);
    }
}

/* Backing ahead of use changes no byte, and ends. */
static void a_store_can_be_backed_ahead_of_use(void **state) {
    (void)state;
    struct kv_layout layout;
    struct block_store store;
    assert_int_equal(kv_layout_init(&layout, DTYPE_F16, N_LAYERS, N_HEADS, 64, 64, 100, NULL), STATUS_OK);
    assert_int_equal(block_store_init(&store, &layout), STATUS_OK);
    size_t last = layout.pool_bytes - 1, n_calls = 1;
    store.bytes[0] = 1;
    store.bytes[last] = 2;
    while (block_store_back(&store)) n_calls++;
    assert_int_equal(store.backed_bytes, layout.pool_bytes);
    assert_true(n_calls <= layout.pool_bytes / MEM_HUGE_PAGE_BYTES + 1);
    assert_false(block_store_back(&store));
    assert_true(store.bytes[0] == 1 && store.bytes[last] == 2);
    block_store_deinit(&store);
}

static void what_cannot_be_reserved_is_an_error(void **state) {
    (void)state;
    struct kv_layout layout;
    struct block_store store;
    assert_int_equal(kv_layout_init(&layout, DTYPE_F16, 1 << 20, 1 << 10, 256, 64, 1 << 14, NULL), STATUS_OK);
    assert_int_equal(block_store_init(&store, &layout), STATUS_NOMEM); /* 2^60 bytes */
    assert_null(store.bytes);
    block_store_deinit(&store);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_new_store_is_zero_and_all_of_it_can_be_used),
        cmocka_unit_test(a_copy_takes_all_layers_and_nothing_else),
        cmocka_unit_test(a_store_can_be_backed_ahead_of_use),
        cmocka_unit_test(what_cannot_be_reserved_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
