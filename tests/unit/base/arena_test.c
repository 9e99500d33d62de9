#include "base/arena.h"

#include <string.h>

#include "base/mem.h"
#include "support/test.h"

static void pieces_are_aligned_and_apart(void **state) {
    (void)state;
    struct arena arena;
    assert_int_equal(arena_init(&arena, 1 << 20), STATUS_OK);
    char *last_end = NULL;
    for (size_t n = 1; n < 300; n++) {
        char *p = arena_alloc(&arena, n);
        assert_non_null(p);
        assert_int_equal((uintptr_t)p % 64, 0);
        assert_true(p >= last_end);
        memset(p, (int)n, n);
        last_end = p + n;
    }
    arena_deinit(&arena);
}

static void the_bound_is_exact(void **state) {
    (void)state;
    struct arena arena;
    assert_int_equal(arena_init(&arena, 200), STATUS_OK);
    assert_null(arena_alloc(&arena, 201));
    assert_null(arena_alloc(&arena, SIZE_MAX));
    char *all = arena_alloc(&arena, 200);
    assert_non_null(all);
    memset(all, 1, 200);
    assert_null(arena_alloc(&arena, 1));
    arena_reset(&arena);
    assert_ptr_equal(arena_alloc(&arena, 130), all);
    assert_null(arena_alloc(&arena, 9)); /* 192 are gone with the padding */
    assert_non_null(arena_alloc(&arena, 8));
    assert_null(arena_alloc(&arena, 1));
    arena_deinit(&arena);
}

static void a_failed_init_leaves_an_empty_arena(void **state) {
    (void)state;
    struct arena arena;
    long n_live = mem_n_live();
    mem_fail_from(1);
    assert_int_equal(arena_init(&arena, 100), STATUS_NOMEM);
    mem_fail_from(0);
    assert_null(arena_alloc(&arena, 1));
    assert_null(arena_alloc(&arena, 0));
    arena_deinit(&arena);
    assert_int_equal(arena_init(&arena, SIZE_MAX), STATUS_NOMEM);
    arena_deinit(&arena);
    assert_int_equal(arena_init(&arena, 100), STATUS_OK);
    arena_deinit(&arena);
    arena_deinit(&arena);
    assert_null(arena_alloc(&arena, 1));
    assert_int_equal(mem_n_live(), n_live);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pieces_are_aligned_and_apart),
        cmocka_unit_test(the_bound_is_exact),
        cmocka_unit_test(a_failed_init_leaves_an_empty_arena),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
