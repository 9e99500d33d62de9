/* Which layers share a block table. */
#include "kvcache/kv_layers.h"

#include <string.h>

#include "support/test.h"

static void one_group_without_windows(void **state) {
    (void)state;
    struct kv_layers layers;
    assert_int_equal(kv_layers_init(&layers, 5, NULL, 100, NULL), STATUS_OK);
    assert_int_equal(layers.n_groups, 1);
    assert_int_equal(layers.n_in_group[0], 5);
    for (int i = 0; i < 5; i++) assert_int_equal(layers.place_of[i], i);
}

static void windows_make_groups(void **state) {
    (void)state;
    struct kv_layers layers;
    assert_int_equal(kv_layers_init(&layers, 6, (const int[]){32, 32, 0, 64, 32, 0}, 1000, NULL), STATUS_OK);
    static const int groups[] = {1, 1, 0, 2, 1, 0}, places[] = {0, 1, 0, 0, 2, 1};
    assert_int_equal(layers.n_groups, 3);
    assert_memory_equal(layers.windows, ((const int[]){0, 32, 64}), 3 * sizeof(int));
    for (int i = 0; i < 6; i++) {
        assert_int_equal(layers.group_of[i], groups[i]);
        assert_int_equal(layers.place_of[i], places[i]);
    }
}

/* What sees farthest is kept whole, and a window that nothing can leave is none. */
static void the_first_group_keeps_everything(void **state) {
    (void)state;
    struct kv_layers layers;
    assert_int_equal(kv_layers_init(&layers, 3, (const int[]){32, 64, 32}, 1000, NULL), STATUS_OK);
    assert_int_equal(layers.n_groups, 2);
    assert_memory_equal(layers.windows, ((const int[]){0, 32}), 2 * sizeof(int));
    assert_memory_equal(layers.group_of, ((const uint8_t[]){1, 0, 1}), 3);
    assert_int_equal(kv_layers_init(&layers, 3, (const int[]){32, 0, 32}, 32, NULL), STATUS_OK);
    assert_int_equal(layers.n_groups, 1);
}

static void too_many_are_refused(void **state) {
    (void)state;
    struct kv_layers layers;
    struct status_note note = {0};
    assert_int_equal(kv_layers_init(&layers, 5, (const int[]){0, 1, 2, 3, 4}, 1000, &note), STATUS_LIMIT);
    assert_non_null(strstr(note.text, "layer 4"));
    assert_int_equal(kv_layers_init(&layers, 4, (const int[]){0, 1, 2, 3}, 1000, NULL), STATUS_OK);
    assert_int_equal(kv_layers_init(&layers, KV_LAYERS_MAX + 1, NULL, 1000, &note), STATUS_LIMIT);
    assert_int_equal(kv_layers_init(&layers, 0, NULL, 1000, &note), STATUS_LIMIT);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_group_without_windows),
        cmocka_unit_test(windows_make_groups),
        cmocka_unit_test(the_first_group_keeps_everything),
        cmocka_unit_test(too_many_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
