/* diagnosis on recorded runs of a real server (scripts/make-diagnosis-runs): every rule speaks on its own runs and on
 * no other, and nothing speaks on healthy load. */
#include "support/test.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file_map.h"
#include "cmd/diagnose_log.h"

#define FOLDER "diagnosis"
#define MAX_RUNS 64
#define HEALTHY "healthy"

/* What is true of a run beside what it was made for. */
static const struct companion {
    const char *run, *rule;
} companions[] = {
    {"slo_burn", "overload"}, /* bulk work that makes others miss their SLO queues before them */
};

static char names[MAX_RUNS][64]; /* without ".jsonl" */
static int n_names;

static int by_name(const void *a, const void *b) {
    return strcmp(a, b);
}

static int find_runs(void **state) {
    (void)state;
    DIR *folder = opendir(test_own_file(FOLDER));
    if (!folder) return -1;
    for (struct dirent *entry; (entry = readdir(folder));) {
        char *end = strstr(entry->d_name, ".jsonl");
        if (!end || n_names == MAX_RUNS) continue;
        *end = 0;
        snprintf(names[n_names++], sizeof names[0], "%.63s", entry->d_name);
    }
    closedir(folder);
    qsort(names, (size_t)n_names, sizeof names[0], by_name);
    return 0;
}

/* "prefill_storm-1" is of "prefill_storm". */
static bool is_of(const char *run, const char *rule) {
    size_t n = strlen(rule);
    return strncmp(run, rule, n) == 0 && run[n] == '-';
}

struct heard {
    int n[DIAGNOSIS_MAX_RULES];
    char sentences[DIAGNOSIS_MAX_RULES][DIAGNOSIS_RULES_MAX_TEXT];
};

static void on_change(void *owner, const struct diagnosis_change *change) {
    struct heard *heard = owner;
    int n_rules;
    const struct diagnosis_rule *rules = diagnosis_rules_table(&n_rules);
    for (int i = 0; i < n_rules; i++) {
        if (!change->is_begin || strcmp(rules[i].name, change->rule) != 0) continue;
        heard->n[i]++;
        snprintf(heard->sentences[i], sizeof heard->sentences[i], "%s", change->sentence);
    }
}

static struct diagnose_log_counts listen(const char *run, struct heard *heard) {
    char name[128];
    struct file_map file;
    struct status_note note = {0};
    struct diagnosis *diagnosis;
    struct diagnose_log_counts counts;
    memset(heard, 0, sizeof *heard);
    snprintf(name, sizeof name, FOLDER "/%s.jsonl", run);
    assert_int_equal(file_map_open(&file, test_own_file(name), &note), STATUS_OK);
    if (diagnose_log_read((const char *)file.bytes, file.n_bytes, on_change, heard, &diagnosis, &counts, &note))
        fail_msg("%s: %s", run, note.text);
    diagnosis_destroy(&diagnosis);
    file_map_close(&file);
    return counts;
}

static bool may_speak(const char *run, const char *rule) {
    for (size_t i = 0; i < sizeof companions / sizeof companions[0]; i++)
        if (is_of(run, companions[i].run) && strcmp(companions[i].rule, rule) == 0) return true;
    return is_of(run, rule);
}

static void every_rule_speaks_on_its_own_runs_alone(void **state) {
    int n_rules, n_wrong = 0;
    const struct diagnosis_rule *rules = diagnosis_rules_table(&n_rules);
    static struct heard heard;
    (void)state;
    for (int r = 0; r < n_names; r++) {
        listen(names[r], &heard);
        for (int i = 0; i < n_rules; i++) {
            bool spoke = heard.n[i] > 0, is_own = is_of(names[r], rules[i].name);
            if (spoke ? may_speak(names[r], rules[i].name) : !is_own) continue;
            n_wrong++;
            print_error("%s: %s %s\n", names[r], rules[i].name, spoke ? heard.sentences[i] : "is silent");
        }
    }
    assert_int_equal(n_wrong, 0);
}

static void every_rule_has_two_runs(void **state) {
    int n_rules;
    const struct diagnosis_rule *rules = diagnosis_rules_table(&n_rules);
    (void)state;
    for (int i = 0; i < n_rules; i++) {
        int n = 0;
        for (int r = 0; r < n_names; r++) n += is_of(names[r], rules[i].name);
        if (n < 2) fail_msg("%s has %d runs", rules[i].name, n);
    }
}

static void healthy_load_is_ten_minutes(void **state) {
    static struct heard heard;
    int n = 0;
    (void)state;
    for (int r = 0; r < n_names; r++) {
        if (!is_of(names[r], HEALTHY)) continue;
        struct diagnose_log_counts counts = listen(names[r], &heard);
        assert_true(counts.last_ms - counts.first_ms >= 590000);
        assert_true(counts.n_requests >= 300 && counts.n_samples >= 500);
        n++;
    }
    assert_true(n >= 1);
}

/* ---- the reader ---- */

static enum status read_text(const char *text, struct status_note *note, struct diagnose_log_counts *out_counts) {
    struct diagnosis *diagnosis;
    enum status status = diagnose_log_read(text, strlen(text), NULL, NULL, &diagnosis, out_counts, note);
    diagnosis_destroy(&diagnosis);
    return status;
}

static void other_lines_are_passed_over(void **state) {
    struct diagnose_log_counts counts;
    struct status_note note;
    (void)state;
    assert_int_equal(read_text("listening\n\n{\"time_ms\":5,\"level\":\"warning\",\"message\":\"x\"}\n"
                               "{\"time_ms\":6,\"status\":200,\"key\":null,\"prompt_tokens\":5,\"ttft_ms\":3}\n"
                               "{\"time_ms\":7,\"status\":429,\"fault\":\"deadline\"}",
                               &note, &counts),
                     STATUS_OK);
    assert_int_equal(counts.n_lines, 5);
    assert_int_equal(counts.n_requests, 2);
}

static void what_is_wrong_is_told_with_line_and_field(void **state) {
    static const struct {
        const char *text, *says;
    } cases[] = {
        {"\n{\"time_ms\":6,\"status\":200,\"prompt_tokens\":-5}", "line 2: prompt_tokens: is no count"},
        {"{\"time_ms\":6,\"status\":200,\"ttft_ms\":\"x\"}", "line 1: ttft_ms: is not a number"},
        {"{\"time_ms\":6,\"status\":200,\"prompt_tokens\":1,\"cached_tokens\":2}",
         "line 1: cached_tokens: is more than prompt_tokens"},
        {"{\"time_ms\":6", "line 1: the line: "},
        {"{\"window\":{\"bucket_ms\":0}}", "line 1: bucket_ms: is not within 1..60000"},
        {"{\"window\":{\"bucket_ms\":10,\"recent\":13}}", "line 1: recent: is not within 1..12"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct diagnose_log_counts counts;
        struct status_note note = {0};
        assert_int_equal(read_text(cases[i].text, &note, &counts), STATUS_FORMAT);
        assert_true(strncmp(note.text, cases[i].says, strlen(cases[i].says)) == 0);
    }
}

/* docs/OPERATIONS.md tells of each rule. */
static void every_rule_is_in_the_manual(void **state) {
    struct file_map file;
    int n_rules;
    const struct diagnosis_rule *rules = diagnosis_rules_table(&n_rules);
    (void)state;
    assert_int_equal(file_map_open(&file, "docs/OPERATIONS.md", NULL), STATUS_OK);
    for (int i = 0; i < n_rules; i++) {
        char row[64];
        snprintf(row, sizeof row, "| `%s` |", rules[i].name);
        if (!memmem(file.bytes, file.n_bytes, row, strlen(row))) fail_msg("%s is not told of", rules[i].name);
    }
    file_map_close(&file);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_rule_speaks_on_its_own_runs_alone),
        cmocka_unit_test(every_rule_has_two_runs),
        cmocka_unit_test(healthy_load_is_ten_minutes),
        cmocka_unit_test(other_lines_are_passed_over),
        cmocka_unit_test(what_is_wrong_is_told_with_line_and_field),
        cmocka_unit_test(every_rule_is_in_the_manual),
    };
    return cmocka_run_group_tests(tests, find_runs, NULL);
}
