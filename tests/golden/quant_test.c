/* Every block format against gguf-py's figures: a short copy beside this file, the long one in the shared data. */
#include <dirent.h>
#include <stdio.h>
#include <string.h>

#include "base/file_map.h"
#include "base/mem.h"
#include "kernels/dequantize.h"
#include "kernels/quantize.h"
#include "support/test.h"

static void open_map(struct file_map *map, const char *folder, const char *stem, const char *extension) {
    char path[1024];
    struct status_note note;
    snprintf(path, sizeof path, "%s/%s.%s", folder, stem, extension);
    if (file_map_open(map, path, &note)) fail_msg("%s: %s", path, note.text);
}

static void compare(const char *folder, enum dtype dtype) {
    const char *name = dtype_name(dtype);
    struct file_map blocks, wanted;
    open_map(&blocks, folder, name, "blocks");
    open_map(&wanted, folder, name, "f32");
    size_t block_bytes = (size_t)dtype_block_bytes(dtype), n_blocks = blocks.n_bytes / block_bytes;
    size_t n = n_blocks * (size_t)dtype_block_elements(dtype);
    assert_int_equal(n_blocks * block_bytes, blocks.n_bytes);
    assert_int_equal(n * sizeof(float), wanted.n_bytes);
    assert_true(n > 0);

    float *out = mem_alloc_array(n, sizeof *out);
    assert_non_null(out);
    dequantize_row(dtype, blocks.bytes, out, (int64_t)n);
    for (size_t i = 0; i < n; i++) {
        uint32_t got_bits, wanted_bits;
        memcpy(&got_bits, &out[i], 4);
        memcpy(&wanted_bits, wanted.bytes + 4 * i, 4);
        if (got_bits != wanted_bits)
            fail_msg("%s/%s: element %zu of block %zu is %a, bits %08x, not %08x", folder, name,
                     i % (size_t)dtype_block_elements(dtype), i / (size_t)dtype_block_elements(dtype), (double)out[i],
                     got_bits, wanted_bits);
    }
    mem_free(out);
    file_map_close(&blocks);
    file_map_close(&wanted);
}

/* A format without a golden copy fails here, so that a new registry row must bring one. */
static void every_known_format_meets_its_own_copy(void **state) {
    (void)state;
    for (enum dtype dtype = 0; dtype < DTYPE_N; dtype++)
        if (dequantize_is_known(dtype) && dtype != DTYPE_F32) compare("tests/golden/quant", dtype);
}

static void every_shared_format_is_met(void **state) {
    (void)state;
    char folder[1024];
    snprintf(folder, sizeof folder, "%s", test_golden_file("quant"));
    DIR *entries = opendir(folder);
    assert_non_null(entries);
    int n_formats = 0;
    for (struct dirent *entry; (entry = readdir(entries));) {
        char *extension = strstr(entry->d_name, ".blocks");
        if (!extension) continue;
        *extension = '\0';
        enum dtype dtype;
        if (!dtype_from_name(entry->d_name, &dtype) || !dequantize_is_known(dtype))
            fail_msg("%s is in the shared data but not in the registry", entry->d_name);
        compare(folder, dtype);
        n_formats++;
    }
    closedir(entries);
    print_message("%d shared formats, all bits equal\n", n_formats);
    assert_true(n_formats >= 22);
}

static void quantizers_give_the_reference_bits(void **state) {
    (void)state;
    static const enum dtype dtypes[] = {DTYPE_F16, DTYPE_BF16, DTYPE_Q8_0, DTYPE_Q4_0, DTYPE_Q4_1};
    struct file_map in;
    open_map(&in, "tests/golden/quant", "quantize", "f32");
    size_t n = in.n_bytes / sizeof(float);
    assert_true(n >= 320);
    for (size_t t = 0; t < sizeof dtypes / sizeof dtypes[0]; t++) {
        struct file_map wanted;
        open_map(&wanted, "tests/golden/quant", "quantize", dtype_name(dtypes[t]));
        uint64_t n_bytes;
        assert_int_equal(dtype_bytes(dtypes[t], n, &n_bytes), STATUS_OK);
        assert_int_equal(n_bytes, wanted.n_bytes);
        uint8_t *blocks = mem_alloc((size_t)n_bytes);
        assert_non_null(blocks);
        quantize_row(dtypes[t], (const float *)(const void *)in.bytes, blocks, (int64_t)n);
        assert_memory_equal(blocks, wanted.bytes, n_bytes);
        mem_free(blocks);
        file_map_close(&wanted);
    }
    file_map_close(&in);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_known_format_meets_its_own_copy),
        cmocka_unit_test(every_shared_format_is_met),
        cmocka_unit_test(quantizers_give_the_reference_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
