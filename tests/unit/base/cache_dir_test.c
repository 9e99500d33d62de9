#include "base/cache_dir.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "support/test.h"

static void the_folder_comes_from_the_environment(void **state) {
    (void)state;
    char dir[CACHE_DIR_MAX_BYTES];
    setenv("XDG_CACHE_HOME", "/c", 1);
    assert_true(cache_dir_find("cost", dir));
    assert_string_equal(dir, "/c/kvick/cost");
    setenv("XDG_CACHE_HOME", "relative", 1);
    setenv("HOME", "/h", 1);
    assert_true(cache_dir_find("cost", dir));
    assert_string_equal(dir, "/h/.cache/kvick/cost");
    unsetenv("HOME");
    assert_false(cache_dir_find("cost", dir));
}

/* No room for a file's name is no folder. */
static void what_is_too_long_is_none(void **state) {
    (void)state;
    static char text[CACHE_DIR_MAX_BYTES];
    char dir[CACHE_DIR_MAX_BYTES];
    memset(text, 'x', sizeof text - 150);
    text[0] = '/';
    setenv("XDG_CACHE_HOME", text, 1);
    assert_true(cache_dir_find("cost", dir));
    memset(text + 1, 'x', sizeof text - 130);
    setenv("XDG_CACHE_HOME", text, 1);
    assert_false(cache_dir_find("cost", dir));
}

static void all_folders_are_made(void **state) {
    (void)state;
    char top[] = "/tmp/kvick-cache-XXXXXX", dir[64];
    struct stat found;
    assert_non_null(mkdtemp(top));
    snprintf(dir, sizeof dir, "%s/a/b", top);
    cache_dir_make(dir);
    cache_dir_make(dir); /* they are there already */
    assert_true(stat(dir, &found) == 0 && S_ISDIR(found.st_mode));
    assert_int_equal(rmdir(dir), 0);
    *strrchr(dir, '/') = 0;
    assert_int_equal(rmdir(dir), 0);
    assert_int_equal(rmdir(top), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_folder_comes_from_the_environment),
        cmocka_unit_test(what_is_too_long_is_none),
        cmocka_unit_test(all_folders_are_made),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
