#include "base/mem.h"

#include <string.h>
#include <sys/mman.h>

#include "support/test.h"

static void assert_zero(const void *p, size_t n_bytes) {
    for (size_t i = 0; i < n_bytes; i++) assert_int_equal(((const char *)p)[i], 0);
}

static void memory_is_zeroed_aligned_and_counted(void **state) {
    (void)state;
    long n_live = mem_n_live();
    void *p[6] = {mem_alloc(1000),       mem_alloc_array(10, 100), mem_alloc(0),
                  mem_alloc_array(0, 8), mem_alloc_lines(1000),    mem_alloc_lines(0)};
    assert_zero(p[0], 1000);
    assert_zero(p[1], 1000);
    assert_zero(p[4], 1000);
    assert_int_equal((uintptr_t)p[4] % MEM_LINE_BYTES, 0);
    assert_int_equal((uintptr_t)p[5] % MEM_LINE_BYTES, 0);
    for (int i = 0; i < 6; i++) {
        assert_non_null(p[i]);
        assert_int_equal((uintptr_t)p[i] % 16, 0);
        for (int j = 0; j < i; j++) assert_ptr_not_equal(p[i], p[j]);
    }
    assert_int_equal(mem_n_live(), n_live + 6);
    for (int i = 0; i < 6; i++) mem_free(p[i]);
    mem_free(NULL);
    assert_int_equal(mem_n_live(), n_live);
}

static void products_that_wrap_are_refused(void **state) {
    (void)state;
    long n_live = mem_n_live();
    assert_null(mem_alloc_array(SIZE_MAX / 2 + 2, 2));
    assert_null(mem_alloc_array((size_t)1 << 33, (size_t)1 << 33));
    assert_null(mem_alloc_lines(SIZE_MAX / 2 + 2));
    assert_null(mem_resize_array(NULL, SIZE_MAX / 2 + 2, 2));
    assert_null(mem_strndup("abc", SIZE_MAX));
    assert_null(mem_map_pages(SIZE_MAX));
    assert_null(mem_map_pages(0));
    assert_int_equal(mem_n_live(), n_live);
}

static void resize_keeps_what_was_there(void **state) {
    (void)state;
    long n_live = mem_n_live();
    int *items = mem_resize_array(NULL, 4, sizeof *items);
    assert_non_null(items);
    for (int i = 0; i < 4; i++) items[i] = i;
    mem_fail_from(1);
    assert_null(mem_resize_array(items, 1000, sizeof *items));
    mem_fail_from(0);
    assert_null(mem_resize_array(items, SIZE_MAX / 2, sizeof *items));
    assert_int_equal(mem_n_live(), n_live + 1);
    items = mem_resize_array(items, 1000, sizeof *items);
    for (int i = 0; i < 4; i++) assert_int_equal(items[i], i);
    items = mem_resize_array(items, 0, sizeof *items);
    assert_non_null(items);
    assert_int_equal(mem_n_live(), n_live + 1);
    mem_free(items);
    assert_int_equal(mem_n_live(), n_live);
}

static void texts_are_copied(void **state) {
    (void)state;
    char *a = mem_strdup("kvick"), *b = mem_strndup("kvick", 3), *c = mem_strndup(NULL, 0);
    assert_string_equal(a, "kvick");
    assert_string_equal(b, "kvi");
    assert_string_equal(c, "");
    mem_free(a);
    mem_free(b);
    mem_free(c);
}

static void the_nth_and_all_after_it_fail(void **state) {
    (void)state;
    for (long nth = 1; nth < 5; nth++) {
        mem_fail_from(nth);
        for (long i = 1; i < 8; i++) {
            void *p = i % 2 ? mem_alloc(1) : mem_map_pages(1);
            assert_int_equal(p != NULL, i < nth);
            if (i % 2)
                mem_free(p);
            else
                mem_unmap_pages(p, 1);
        }
        mem_fail_from(0);
        void *p = mem_alloc(1);
        assert_non_null(p);
        mem_free(p);
    }
}

static void pages_are_aligned_to_huge_ones(void **state) {
    (void)state;
    long n_live = mem_n_live();
    static const size_t n_bytes[] = {1, 4096, (size_t)2 << 20, ((size_t)2 << 20) + 1, (size_t)5 << 20};
    for (size_t i = 0; i < sizeof n_bytes / sizeof n_bytes[0]; i++) {
        char *p = mem_map_pages(n_bytes[i]);
        assert_non_null(p);
        assert_int_equal((uintptr_t)p % ((size_t)2 << 20), 0);
        assert_int_equal(p[0], 0);
        assert_int_equal(p[n_bytes[i] - 1], 0);
        p[n_bytes[i] - 1] = 1;
        assert_int_equal(mem_n_live(), n_live + 1);
        mem_unmap_pages(p, n_bytes[i]);
        assert_int_equal(mem_n_live(), n_live);
    }
    mem_unmap_pages(NULL, 1);
}

static void pages_can_be_backed_ahead_of_use(void **state) {
    (void)state;
    size_t n_bytes = 3 * MEM_HUGE_PAGE_BYTES;
    char *p = mem_map_pages(n_bytes);
    unsigned char is_backed[2] = {0, 0};
    assert_non_null(p);
    p[MEM_HUGE_PAGE_BYTES + 5] = 7;
    if (!mem_back_pages(p + MEM_HUGE_PAGE_BYTES, MEM_HUGE_PAGE_BYTES)) {
        print_message("this CPU's kernel cannot back pages ahead of use\n");
        mem_unmap_pages(p, n_bytes);
        skip();
    }
    assert_int_equal(p[MEM_HUGE_PAGE_BYTES + 5], 7);
    assert_int_equal(mincore(p + 2 * MEM_HUGE_PAGE_BYTES - 4096, 8192, is_backed), 0);
    assert_int_equal(is_backed[0] & 1, 1); /* the last page of the range */
    assert_int_equal(is_backed[1] & 1, 0); /* and the first behind it */
    mem_unmap_pages(p, n_bytes);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_is_zeroed_aligned_and_counted), cmocka_unit_test(products_that_wrap_are_refused),
        cmocka_unit_test(resize_keeps_what_was_there),          cmocka_unit_test(texts_are_copied),
        cmocka_unit_test(the_nth_and_all_after_it_fail),        cmocka_unit_test(pages_are_aligned_to_huge_ones),
        cmocka_unit_test(pages_can_be_backed_ahead_of_use),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
