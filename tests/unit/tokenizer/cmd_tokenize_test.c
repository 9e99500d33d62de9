/* kvick tokenize as a person calls it: the built binary on a vocabulary of our own, through a shell. */
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "unit/tokenizer/small_vocab.h"

static char model_path[64], kvick_path[4096];

static int write_model(void **state) {
    (void)state;
    static struct small_vocab vocab;
    char self[4000];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    if (n < 0) return -1;
    self[n] = 0;
    snprintf(kvick_path, sizeof kvick_path, "%s/../kvick", dirname(self));
    snprintf(model_path, sizeof model_path, "/tmp/kvick-tokenize-XXXXXX");
    int fd = mkstemp(model_path);
    if (fd < 0) return -1;
    small_bpe(&vocab);
    small_write(&vocab);
    ssize_t n_written = write(fd, vocab.bytes, vocab.n_bytes);
    return close(fd) || n_written != (ssize_t)vocab.n_bytes;
}

static int remove_model(void **state) {
    (void)state;
    return unlink(model_path);
}

/* input: a printf format of the shell, or NULL for an empty stdin. Both streams are read as one. */
static void check(const char *input, const char *args, int want_exit, const char *want) {
    char command[9000], got[4096];
    snprintf(command, sizeof command, "%s%s%s'%s' tokenize '%s' %s 2>&1%s", input ? "printf '" : "", input ? input : "",
             input ? "' | " : "", kvick_path, model_path, args, input ? "" : " </dev/null");
    FILE *pipe = popen(command, "r");
    assert_non_null(pipe);
    size_t n = fread(got, 1, sizeof got - 1, pipe);
    got[n] = 0;
    int status = pclose(pipe);
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status) != want_exit || (want_exit ? !strstr(got, want) : strcmp(got, want) != 0))
        fail_msg("%s\nexit %d: %s", command, WEXITSTATUS(status), got);
}

static void text_comes_from_argument_or_stdin(void **state) {
    (void)state;
    check(NULL, "hello", 0, "262\n");
    check("hello", "", 0, "262\n");
    check("a\\n\\000\\377", "", 0, "97 10 0 255\n");
    check(NULL, "", 0, "\n");
    check(NULL, "''", 0, "\n");
    check(NULL, "'x<|end|>'", 0, "120 60 124 101 110 100 124 62\n");
    check(NULL, "'x<|end|>' --parse-special --bos", 0, "256 120 257\n");
}

static void lines_are_json(void **state) {
    (void)state;
    check("{\"text\":\"hello\"}\\n{\"text\":\"\"}\\n\\n{\"text\":\"a\\\\u0000b\"}", "--jsonl", 0,
          "{\"ids\": [262]}\n{\"ids\": []}\n{\"ids\": [97, 0, 98]}\n");
    check("{\"text\":\"hello\"}\\n{\"text\":7}\\n", "--jsonl", 1, "line 2: no string under \"text\"");
    check("[]", "--jsonl", 1, "line 1");
    check("{\"text\":\"\\\\ud83d\"}", "--jsonl", 1, "line 1");
    check("{\"text\":\"\\377\"}", "--jsonl", 1, "line 1");
    check("{\"text\":\"a\",\"text\":\"b\"}", "--jsonl", 1, "line 1");
}

static void wrong_use_is_told(void **state) {
    (void)state;
    check(NULL, "a b", 2, "unexpected argument 'b'");
    check(NULL, "a --jsonl", 2, "--jsonl");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_comes_from_argument_or_stdin),
        cmocka_unit_test(lines_are_json),
        cmocka_unit_test(wrong_use_is_told),
    };
    return cmocka_run_group_tests(tests, write_model, remove_model);
}
