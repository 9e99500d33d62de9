#include "planner/cost_file.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cpu.h"
#include "support/test.h"

static char folder[64];
static struct status_note note;

static struct cost_model make_model(int n_threads) {
    static const struct model_config config = {
        .n_layers = 2, .d_model = 64, .n_heads = 4, .n_kv_heads = 2, .head_dim = 16, .d_ff = 128, .n_vocab = 100};
    struct kernel_table kernels;
    struct cost_model model;
    struct cost_model_setup setup = {
        .tier = "scalar", .n_threads = n_threads, .kv_type = "F16", .activations = "auto", .weights = {7}};
    kernel_table_choose(&kernels, CPU_TIER_scalar);
    cost_model_init(&model, &setup, &config, &kernels, 1000000);
    return model;
}

static int set_up(void **state) {
    (void)state;
    strcpy(folder, "/tmp/kvick-cost-XXXXXX");
    assert_non_null(mkdtemp(folder));
    strcat(folder, "/a/b"); /* is made when it is needed */
    return 0;
}

static int each_file(void (*do_it)(const char *path)) {
    char path[512];
    struct dirent *entry;
    int n = 0;
    DIR *dir = opendir(folder);
    while (dir && (entry = readdir(dir))) {
        if (entry->d_name[0] == '.') continue;
        n++;
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        if (do_it) do_it(path);
    }
    if (dir) closedir(dir);
    return n;
}

static void remove_file(const char *path) {
    unlink(path);
}

static int tear_down(void **state) {
    (void)state;
    each_file(remove_file);
    rmdir(folder);
    folder[strlen(folder) - 2] = 0;
    rmdir(folder);
    folder[strlen(folder) - 2] = 0;
    rmdir(folder);
    return 0;
}

static void what_is_saved_is_loaded(void **state) {
    (void)state;
    struct cost_model saved = make_model(2), loaded = make_model(2);
    saved.base.rows_ns[3] = saved.base.rows_ns[2] + 12345.678;
    saved.base.decode_row_ns = 0.1;
    saved.is_disturbed = true;
    assert_false(cost_file_load(&loaded, folder));
    assert_int_equal(cost_file_save(&saved, folder, &note), STATUS_OK);
    assert_true(cost_file_load(&loaded, folder));
    assert_int_equal(loaded.source, COST_MODEL_READ);
    assert_int_equal(loaded.base.n_points, saved.base.n_points);
    for (int i = 0; i < saved.base.n_points; i++) assert_true(loaded.base.rows_ns[i] >= saved.base.rows_ns[i]);
    assert_true(loaded.base.rows_ns[3] == saved.base.rows_ns[3]);
    assert_true(loaded.base.decode_row_ns == 0.1);
    assert_true(loaded.is_disturbed);
    assert_int_equal(each_file(NULL), 1);
}

static void another_key_has_another_file(void **state) {
    (void)state;
    struct cost_model two = make_model(2), three = make_model(3);
    assert_string_not_equal(two.key, three.key);
    assert_int_equal(cost_file_save(&two, folder, &note), STATUS_OK);
    assert_false(cost_file_load(&three, folder));
}

static long damage_at;

static void damage(const char *path) {
    FILE *file = fopen(path, "r+");
    assert_non_null(file);
    fseek(file, damage_at, SEEK_SET);
    int byte = fgetc(file);
    fseek(file, damage_at, SEEK_SET);
    fputc(byte == 'x' ? 'y' : 'x', file);
    fclose(file);
}

static void cut(const char *path) {
    assert_int_equal(truncate(path, damage_at), 0);
}

static long file_bytes;

static void measure_file(const char *path) {
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    file_bytes = st.st_size;
}

static void a_damaged_file_is_ignored(void **state) {
    (void)state;
    struct cost_model saved = make_model(2);
    assert_int_equal(cost_file_save(&saved, folder, &note), STATUS_OK);
    each_file(measure_file);
    for (damage_at = 0; damage_at < file_bytes; damage_at += 7) {
        struct cost_model loaded = make_model(2);
        assert_int_equal(cost_file_save(&saved, folder, &note), STATUS_OK);
        each_file(damage);
        if (cost_file_load(&loaded, folder)) fail_msg("byte %ld of %ld", damage_at, file_bytes);
        assert_int_equal(loaded.source, COST_MODEL_GUESSED);
        assert_int_equal(cost_file_save(&saved, folder, &note), STATUS_OK);
        each_file(cut);
        assert_false(cost_file_load(&loaded, folder));
    }
}

static void old_files_go(void **state) {
    (void)state;
    for (int i = 1; i <= COST_FILE_MAX_FILES + 5; i++) {
        struct cost_model model = make_model(i);
        assert_int_equal(cost_file_save(&model, folder, &note), STATUS_OK);
        usleep(1500);
    }
    struct cost_model first = make_model(1), last = make_model(COST_FILE_MAX_FILES + 5);
    assert_int_equal(each_file(NULL), COST_FILE_MAX_FILES);
    assert_false(cost_file_load(&first, folder));
    assert_true(cost_file_load(&last, folder));
}

static void a_folder_that_cannot_be_is_an_error(void **state) {
    (void)state;
    struct cost_model model = make_model(1);
    assert_int_equal(cost_file_save(&model, "/proc/none/kvick", &note), STATUS_IO);
    assert_non_null(strstr(note.text, "/proc/none/kvick"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(what_is_saved_is_loaded, set_up, tear_down),
        cmocka_unit_test_setup_teardown(another_key_has_another_file, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_damaged_file_is_ignored, set_up, tear_down),
        cmocka_unit_test_setup_teardown(old_files_go, set_up, tear_down),
        cmocka_unit_test(a_folder_that_cannot_be_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
