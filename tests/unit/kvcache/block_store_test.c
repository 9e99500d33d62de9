#include "kvcache/block_store.h"

#include <string.h>

#include "support/test.h"

static void a_copy_takes_all_layers_and_no_other_block(void **state) {
    enum { LAYERS = 3, BLOCKS = 4, HEADS = 2 };
    struct kv_layout layout;
    struct block_store store;
    (void)state;
    assert_int_equal(kv_layout_init(&layout, DTYPE_F32, LAYERS, HEADS, 16, 16, BLOCKS, NULL), STATUS_OK);
    assert_int_equal(block_store_init(&store, &layout), STATUS_OK);
    for (size_t i = 0; i < layout.pool_bytes; i++) assert_int_equal(store.bytes[i], 0);
    for (int layer = 0; layer < LAYERS; layer++)
        for (uint32_t block = 0; block < BLOCKS; block++)
            for (int head = 0; head < HEADS; head++) {
                int mark = 1 + layer * 50 + (int)block * 10 + head * 2;
                memset(block_store_k(&store, layer, block, head), mark, layout.head_bytes / 2);
                memset(block_store_v(&store, layer, block, head), mark + 1, layout.head_bytes / 2);
            }
    block_store_copy(&store, 1, 3);
    for (int layer = 0; layer < LAYERS; layer++)
        for (uint32_t block = 0; block < BLOCKS; block++)
            for (int head = 0; head < HEADS; head++) {
                int mark = 1 + layer * 50 + (block == 3 ? 10 : (int)block * 10) + head * 2;
                const unsigned char *k = block_store_k(&store, layer, block, head);
                const unsigned char *v = block_store_v(&store, layer, block, head);
                assert_int_equal(k[0], mark);
                assert_int_equal(k[layout.head_bytes / 2 - 1], mark);
                assert_int_equal(v[0], mark + 1);
                assert_int_equal(v[layout.head_bytes / 2 - 1], mark + 1);
            }
    block_store_deinit(&store);
}

static void no_memory_is_told(void **state) {
    struct kv_layout layout;
    struct block_store store;
    (void)state;
    assert_int_equal(kv_layout_init(&layout, DTYPE_F32, 200, 64, 256, 64, 1 << 22, NULL), STATUS_OK);
    assert_int_equal(block_store_init(&store, &layout), STATUS_NOMEM);
    block_store_deinit(&store);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_copy_takes_all_layers_and_no_other_block),
        cmocka_unit_test(no_memory_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
