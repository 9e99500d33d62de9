#include "base/file_map.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "support/test.h"

static char folder[64];

static const char *path_of(const char *name) {
    static char path[128];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static void write_file(const char *name, const char *bytes, size_t n_bytes) {
    FILE *file = fopen(path_of(name), "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, n_bytes, file), n_bytes);
    fclose(file);
}

static void the_whole_file_is_there(void **state) {
    (void)state;
    static char bytes[10000];
    for (size_t i = 0; i < sizeof bytes; i++) bytes[i] = (char)(i * 7);
    static const size_t sizes[] = {1, 4095, 4096, 4097, sizeof bytes};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        struct file_map map;
        struct status_note note;
        write_file("f", bytes, sizes[i]);
        assert_int_equal(file_map_open(&map, path_of("f"), &note), STATUS_OK);
        assert_int_equal(map.n_bytes, sizes[i]);
        assert_memory_equal(map.bytes, bytes, sizes[i]);
        unlink(path_of("f")); /* the mapping stays */
        assert_memory_equal(map.bytes, bytes, sizes[i]);
        file_map_close(&map);
        assert_null(map.bytes);
        file_map_close(&map);
    }
}

static void released_pages_can_be_read_again(void **state) {
    (void)state;
    static char bytes[6 * 4096 + 100];
    for (size_t i = 0; i < sizeof bytes; i++) bytes[i] = (char)(i * 11);
    struct file_map map;
    write_file("f", bytes, sizeof bytes);
    assert_int_equal(file_map_open(&map, path_of("f"), NULL), STATUS_OK);
    static const size_t ranges[][2] = {{0, 0},       {1, 2},           {4000, 5000}, {0, sizeof bytes},
                                       {24576, 100}, {sizeof bytes, 0}};
    for (size_t i = 0; i < sizeof ranges / sizeof ranges[0]; i++) {
        assert_memory_equal(map.bytes, bytes, sizeof bytes);
        file_map_release(&map, ranges[i][0], ranges[i][1]);
    }
    assert_memory_equal(map.bytes, bytes, sizeof bytes);
    file_map_close(&map);
    unlink(path_of("f"));
}

static void an_empty_file_is_no_error(void **state) {
    (void)state;
    struct file_map map;
    write_file("empty", "", 0);
    assert_int_equal(file_map_open(&map, path_of("empty"), NULL), STATUS_OK);
    assert_null(map.bytes);
    assert_int_equal(map.n_bytes, 0);
    file_map_close(&map);
    unlink(path_of("empty"));
}

static void what_is_no_file_is_refused(void **state) {
    (void)state;
    struct file_map map;
    struct status_note note;
    assert_int_equal(mkfifo(path_of("fifo"), 0600), 0);
    const char *names[] = {"fifo", "", "absent", "absent/deeper"};
    for (int i = 0; i < 4; i++) {
        note.text[0] = 0;
        assert_int_equal(file_map_open(&map, path_of(names[i]), &note), STATUS_IO);
        assert_true(strlen(note.text) > 0);
        assert_null(map.bytes);
        file_map_close(&map);
    }
    unlink(path_of("fifo"));
    assert_int_equal(file_map_open(&map, "/dev/zero", &note), STATUS_IO);
    assert_int_equal(file_map_open(&map, "", &note), STATUS_IO);
}

static int make_folder(void **state) {
    (void)state;
    const char *base = getenv("TMPDIR");
    snprintf(folder, sizeof folder, "%.40s/kvick-XXXXXX", base && *base ? base : "/tmp");
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state) {
    (void)state;
    return rmdir(folder);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_whole_file_is_there),
        cmocka_unit_test(released_pages_can_be_read_again),
        cmocka_unit_test(an_empty_file_is_no_error),
        cmocka_unit_test(what_is_no_file_is_refused),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
