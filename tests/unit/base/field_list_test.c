#include "base/field_list.h"

#include <string.h>

#include "support/test.h"

struct sizes {
    double layers, share;
};

static const struct field_row rows[] = {{"layers", offsetof(struct sizes, layers), 1, 512, true},
                                        {"share", offsetof(struct sizes, share), 0, 1, false}};

static enum status read(const char *text, struct sizes *out, struct status_note *note) {
    *note = (struct status_note){0};
    return field_list_read(text, rows, 2, out, note);
}

static void named_fields_are_set_and_others_stay(void **state) {
    struct sizes sizes = {.share = 0.5};
    struct status_note note;
    (void)state;
    assert_int_equal(read("layers=32", &sizes, &note), STATUS_OK);
    assert_true(sizes.layers == 32 && sizes.share == 0.5);
    assert_int_equal(read("", &sizes, &note), STATUS_OK);
}

static void a_file_has_lines_blanks_and_comments(void **state) {
    struct sizes sizes = {0};
    struct status_note note;
    (void)state;
    assert_int_equal(read("# a machine, layers=9\n  layers = 7 \r\n\n share=0.25 # of all\n", &sizes, &note),
                     STATUS_OK);
    assert_true(sizes.layers == 7 && sizes.share == 0.25);
}

static void faults_name_field_and_value(void **state) {
    static const struct {
        const char *text, *words[2];
    } cases[] = {
        {"layers", {"layers", "NAME=NUMBER"}},   {"=3", {"NAME=NUMBER", "=3"}},      {"layers=0", {"layers", "'0'"}},
        {"layers=513", {"layers", "513"}},       {"layers=1.5", {"layers", "1.5"}},  {"layers=8x", {"layers", "8x"}},
        {"layers=", {"layers", "''"}},           {"layers=nan", {"layers", "nan"}},  {"share=1.01", {"share", "1.01"}},
        {"heads=3", {"heads", "layers, share"}}, {"LAYERS=3", {"LAYERS", "unknown"}}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct sizes sizes = {0};
        struct status_note note;
        assert_int_equal(read(cases[i].text, &sizes, &note), STATUS_INVALID);
        for (int w = 0; w < 2; w++)
            if (!strstr(note.text, cases[i].words[w])) fail_msg("%s: %s", cases[i].text, note.text);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(named_fields_are_set_and_others_stay),
        cmocka_unit_test(a_file_has_lines_blanks_and_comments),
        cmocka_unit_test(faults_name_field_and_value),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
