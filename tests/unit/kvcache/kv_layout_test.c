#include "kvcache/kv_layout.h"

#include <string.h>

#include "support/test.h"

static void sizes_add_up(void **state) {
    struct kv_layout layout;
    (void)state;
    for (int f16 = 0; f16 < 2; f16++) {
        size_t item = f16 ? 2 : 4;
        assert_int_equal(kv_layout_init(&layout, f16 ? DTYPE_F16 : DTYPE_F32, 3, 2, 64, 32, 10, NULL), STATUS_OK);
        assert_int_equal(layout.head_bytes, 2 * 64 * 32 * item);
        assert_int_equal(layout.block_bytes, 2 * layout.head_bytes);
        assert_int_equal(layout.layer_bytes, 10 * layout.block_bytes);
        assert_int_equal(layout.pool_bytes, 3 * layout.layer_bytes);
        assert_int_equal(kv_layout_token_bytes(&layout), 3 * 2 * 2 * 64 * item);
        assert_int_equal(kv_layout_token_bytes(&layout) * 32 * 10, layout.pool_bytes);
    }
}

/* Every (layer, block, head) has its own K and V, and together they fill the pool. */
static void pieces_tile_the_pool(void **state) {
    enum { LAYERS = 3, BLOCKS = 4, HEADS = 2 };
    struct kv_layout layout;
    static unsigned char used[LAYERS * BLOCKS * HEADS * 2];
    (void)state;
    assert_int_equal(kv_layout_init(&layout, DTYPE_F16, LAYERS, HEADS, 16, 16, BLOCKS, NULL), STATUS_OK);
    size_t half = layout.head_bytes / 2;
    for (int layer = 0; layer < LAYERS; layer++)
        for (uint32_t block = 0; block < BLOCKS; block++)
            for (int head = 0; head < HEADS; head++) {
                size_t offs[2] = {kv_layout_k_off(&layout, layer, block, head),
                                  kv_layout_v_off(&layout, layer, block, head)};
                for (int i = 0; i < 2; i++) {
                    assert_int_equal(offs[i] % half, 0);
                    assert_true(offs[i] + half <= layout.pool_bytes);
                    assert_int_equal(used[offs[i] / half]++, 0);
                }
            }
    for (size_t i = 0; i < sizeof used; i++) assert_int_equal(used[i], 1);
}

static void expect(enum status status, enum dtype dtype, int n_layers, int head_dim, int block_tokens, int n_blocks,
                   const char *word) {
    struct kv_layout layout;
    struct status_note note = {0};
    assert_int_equal(kv_layout_init(&layout, dtype, n_layers, 8, head_dim, block_tokens, n_blocks, &note), status);
    if (!strstr(note.text, word)) fail_msg("'%s' does not say '%s'", note.text, word);
}

static void what_has_no_layout_is_refused(void **state) {
    (void)state;
    expect(STATUS_INVALID, DTYPE_Q8_0, 2, 64, 16, 10, "Q8_0");
    expect(STATUS_INVALID, DTYPE_BF16, 2, 64, 16, 10, "BF16");
    expect(STATUS_INVALID, DTYPE_F16, 2, 64, 17, 10, "17");
    expect(STATUS_INVALID, DTYPE_F16, 2, 64, 128, 10, "128");
    expect(STATUS_INVALID, DTYPE_F16, 2, 64, 0, 10, "0");
    expect(STATUS_INVALID, DTYPE_F16, 2, 24, 16, 10, "24");
    expect(STATUS_LIMIT, DTYPE_F32, INT32_MAX, 256, 64, INT32_MAX, "");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes_add_up),
        cmocka_unit_test(pieces_tile_the_pool),
        cmocka_unit_test(what_has_no_layout_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
