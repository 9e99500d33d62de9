#include "kvcache/kv_layout.h"

#include <limits.h>
#include <stdint.h>
#include <string.h>

#include "base/mem.h"
#include "kernels/kv_i8.h"
#include "kernels/kv_q8_0.h"
#include "support/test.h"

static struct kv_layout make(enum dtype dtype, int n_layers, int n_kv_heads, int head_dim, int block_tokens,
                             int n_blocks) {
    struct kv_layout layout;
    struct status_note note = {0};
    if (kv_layout_init(&layout, dtype, n_layers, n_kv_heads, head_dim, block_tokens, n_blocks, &note))
        fail_msg("%s", note.text);
    return layout;
}

static void sizes_are_those_of_the_numbers(void **state) {
    (void)state;
    /* SmolLM2's shape: 30 layers, 3 KV heads of 64 */
    struct kv_layout f16 = make(DTYPE_F16, 30, 3, 64, 16, 100);
    assert_int_equal(f16.head_bytes, 4096);
    assert_int_equal(f16.block_bytes, 12288);
    assert_int_equal(f16.stride_bytes, 372736); /* 30 x 12,288, and 4,096 that make it an odd multiple */
    assert_int_equal(f16.pool_bytes, 37273600);
    assert_int_equal(kv_layout_token_bytes(&f16), 23040);
    struct kv_layout f32 = make(DTYPE_F32, 30, 3, 64, 64, 25);
    assert_int_equal(kv_layout_token_bytes(&f32), 46080);
    assert_int_equal(f32.pool_bytes, ((size_t)46080 * 64 + 4096) * 25);
    struct kv_layout i8 = make(DTYPE_I8, 30, 3, 64, 16, 100);
    assert_int_equal(i8.head_bytes, 2 * 16 * (64 + 4)); /* a float scale per token */
    assert_int_equal(kv_layout_token_bytes(&i8), 30 * 3 * 2 * (64 + 4));
    assert_int_equal(i8.head_bytes / 2, kv_i8_block_bytes(16, 64));
    assert_int_equal(kv_layout_vector_bytes(DTYPE_I8, 64), 68);
    struct kv_layout q8_0 = make(DTYPE_Q8_0, 30, 3, 64, 16, 100);
    assert_int_equal(q8_0.head_bytes, 2 * 16 * (64 + 2 * 2)); /* an f16 scale per token and 32 dims */
    assert_int_equal(kv_layout_token_bytes(&q8_0), 30 * 3 * 2 * 68);
    for (int head_dim = 32; head_dim <= 256; head_dim += 32) {
        assert_int_equal(kv_layout_vector_bytes(DTYPE_Q8_0, head_dim), head_dim / 32 * 34);
        assert_int_equal(kv_q8_0_block_bytes(16, head_dim), 16 * head_dim / 32 * 34);
    }
    assert_int_equal(kv_layout_vector_bytes(DTYPE_F16, 64), 128);
    assert_true(f32.dtype == DTYPE_F32 && f32.n_layers == 30 && f32.n_kv_heads == 3 && f32.head_dim == 64 &&
                f32.block_tokens == 64 && f32.n_blocks == 25);
}

static void sizes_do_not_wrap_at_32_bits(void **state) {
    (void)state;
    struct kv_layout layout = make(DTYPE_F16, 126, 128, 128, 64, 100000);
    assert_true(layout.stride_bytes == (size_t)126 * 128 * 128 * 64 * 2 * 2 + 4096);
    assert_true(layout.pool_bytes == layout.stride_bytes * 100000);
    size_t last = kv_layout_v_off(&layout, 125, 99999, 127);
    assert_true(last + layout.head_bytes / 2 == layout.pool_bytes - 4096);
}

static void mark(uint8_t *owners, size_t off, size_t n_bytes, size_t pool_bytes) {
    assert_true(off <= pool_bytes && n_bytes <= pool_bytes - off);
    for (size_t i = 0; i < n_bytes; i++) owners[off + i]++;
}

static void every_byte_belongs_to_one_place(void **state) {
    (void)state;
    static const enum dtype dtypes[] = {DTYPE_F16, DTYPE_F32, DTYPE_I8, DTYPE_Q8_0};
    static const size_t vector_bytes[] = {96 * 2, 96 * 4, 96 + 4, 96 + 3 * 2};
    for (int d = 0; d < 4; d++) {
        for (int block_tokens = 16; block_tokens <= 64; block_tokens *= 2) {
            struct kv_layout layout = make(dtypes[d], 3, 2, 96, block_tokens, 5);
            size_t part_bytes = vector_bytes[d] * (size_t)block_tokens;
            uint8_t *owners = mem_alloc(layout.pool_bytes);
            assert_non_null(owners);
            for (int layer = 0; layer < 3; layer++) {
                for (uint32_t block = 0; block < 5; block++) {
                    for (int head = 0; head < 2; head++) {
                        size_t k_off = kv_layout_k_off(&layout, layer, block, head);
                        size_t v_off = kv_layout_v_off(&layout, layer, block, head);
                        assert_true(v_off == k_off + part_bytes); /* K and V of a head are contiguous */
                        mark(owners, k_off, part_bytes, layout.pool_bytes);
                        mark(owners, v_off, part_bytes, layout.pool_bytes);
                    }
                }
            }
            size_t n_unused = 0;
            for (size_t i = 0; i < layout.pool_bytes; i++) {
                assert_true(owners[i] <= 1);
                n_unused += owners[i] == 0;
            }
            assert_true(n_unused == 0 || (layout.stride_bytes > 65536 && n_unused <= 5 * 2 * 4096));
            mem_free(owners);
        }
    }
}

static void a_block_of_a_layer_is_contiguous(void **state) {
    (void)state;
    struct kv_layout layout = make(DTYPE_F16, 2, 3, 32, 16, 4);
    for (int head = 0; head < 3; head++)
        assert_true(kv_layout_k_off(&layout, 1, 2, head) ==
                    kv_layout_k_off(&layout, 1, 2, 0) + (size_t)head * layout.head_bytes);
    assert_true(kv_layout_k_off(&layout, 1, 3, 0) - kv_layout_k_off(&layout, 0, 3, 0) == layout.block_bytes);
    assert_true(kv_layout_k_off(&layout, 1, 3, 0) - kv_layout_k_off(&layout, 1, 2, 0) == layout.stride_bytes);
}

/* What a fold reads of one head lies in different sets of a cache, whatever powers of two the model's shape is made of.
 */
static void blocks_are_an_odd_number_of_pages_apart(void **state) {
    (void)state;
    static const int shapes[][3] = {{16, 8, 64}, {30, 3, 64}, {18, 1, 256}, {28, 8, 128}, {5, 3, 48}};
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        struct kv_layout layout = make(DTYPE_F16, shapes[i][0], shapes[i][1], shapes[i][2], 16, 4);
        size_t used_bytes = layout.block_bytes * (size_t)layout.n_layers;
        if (used_bytes < 65536) continue;
        assert_int_equal(layout.stride_bytes % 8192, 4096);
        assert_true(layout.stride_bytes >= used_bytes && layout.stride_bytes < used_bytes + 8192);
    }
}

static void what_cannot_be_laid_out_is_refused(void **state) {
    (void)state;
    static const struct {
        enum dtype dtype;
        int n_layers, n_kv_heads, head_dim, block_tokens, n_blocks;
        enum status status;
        const char *word;
    } cases[] = {
        {DTYPE_Q8_1, 1, 1, 64, 16, 1, STATUS_INVALID, "Q8_1"},
        {DTYPE_Q8_0, 1, 1, 48, 16, 1, STATUS_INVALID, "head size 48 is no multiple of 32"},
        {DTYPE_Q8_0, 1, 1, 80, 16, 1, STATUS_INVALID, "int8"},
        {DTYPE_BF16, 1, 1, 64, 16, 1, STATUS_INVALID, "BF16"},
        {DTYPE_F16, 1, 1, 64, 0, 1, STATUS_INVALID, "block of 0"},
        {DTYPE_F16, 1, 1, 64, 8, 1, STATUS_INVALID, "block of 8"},
        {DTYPE_F16, 1, 1, 64, 48, 1, STATUS_INVALID, "block of 48"},
        {DTYPE_F16, 1, 1, 64, 128, 1, STATUS_INVALID, "block of 128"},
        {DTYPE_F16, 1, 1, 64, -16, 1, STATUS_INVALID, "block of -16"},
        {DTYPE_F16, 1, 1, 0, 16, 1, STATUS_INVALID, "head size 0"},
        {DTYPE_F16, 1, 1, -16, 16, 1, STATUS_INVALID, "head size -16"},
        {DTYPE_F16, 1, 1, 72, 16, 1, STATUS_INVALID, "head size 72"},
        {DTYPE_F16, 0, 1, 64, 16, 1, STATUS_INVALID, "0 layers"},
        {DTYPE_F16, -1, 1, 64, 16, 1, STATUS_INVALID, "-1 layers"},
        {DTYPE_F16, 1, 0, 64, 16, 1, STATUS_INVALID, "0 heads"},
        {DTYPE_F16, 1, 1, 64, 16, 0, STATUS_INVALID, "0 blocks"},
        {DTYPE_F16, 1, 1, 64, 16, -1, STATUS_INVALID, "-1 blocks"},
        {DTYPE_F16, INT_MAX, INT_MAX, 64, 16, INT_MAX, STATUS_LIMIT, "2147483647 blocks"},
        {DTYPE_F32, INT_MAX, 64, INT_MAX - 15, 64, 1, STATUS_LIMIT, "2147483647 layers"},
        /* products that wrap to something small: 2^12 * 2^26 * 2^26 = 2^64 */
        {DTYPE_F16, 1 << 26, 1, 64, 16, 1 << 26, STATUS_LIMIT, "67108864 blocks"},
        {DTYPE_F16, 1 << 26, 1 << 26, 64, 16, 1, STATUS_LIMIT, "67108864 heads"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct kv_layout layout;
        struct status_note note = {0};
        enum status status = kv_layout_init(&layout, cases[i].dtype, cases[i].n_layers, cases[i].n_kv_heads,
                                            cases[i].head_dim, cases[i].block_tokens, cases[i].n_blocks, &note);
        assert_int_equal(status, cases[i].status);
        if (!strstr(note.text, cases[i].word)) fail_msg("no '%s' in: %s", cases[i].word, note.text);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes_are_those_of_the_numbers),          cmocka_unit_test(sizes_do_not_wrap_at_32_bits),
        cmocka_unit_test(every_byte_belongs_to_one_place),         cmocka_unit_test(a_block_of_a_layer_is_contiguous),
        cmocka_unit_test(blocks_are_an_odd_number_of_pages_apart), cmocka_unit_test(what_cannot_be_laid_out_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
