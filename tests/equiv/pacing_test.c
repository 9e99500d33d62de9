/* Steps bounded in time by guessed, measured and kept costs: other chunks, the same answers. */
#include "support/request_run.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "support/test.h"

enum { N_PROMPT = 900, N_ANSWER = 20 };

static struct engine *start(const char *cost_dir, int64_t calibrate_ns, int64_t max_step_ns) {
    struct engine_options options = request_run_options(&request_run_plain, 2, 4 * REQUEST_RUN_MAX_CONTEXT);
    struct status_note note = {0};
    struct engine *engine;
    options.target_itl_ns = options.max_step_ns = max_step_ns;
    options.cost_dir = cost_dir;
    options.calibrate_ns = calibrate_ns;
    if (engine_create(&engine, &options, &note)) fail_msg("%s", note.text);
    return engine;
}

/* Returns in how many steps the prompt was computed. */
static int ask(struct engine *engine, uint32_t *out_answer) {
    struct request *request = request_run_make(N_PROMPT, N_ANSWER);
    request->sampling = (struct sampling){.temperature = 1, .top_p = 1, .seed = 4};
    request_run_ask(engine, request);
    memcpy(out_answer, engine_client_answer(request, 0), N_ANSWER * sizeof *out_answer);
    int n_steps = request->stats.n_prefill_steps;
    engine_client_free(&request);
    engine_destroy(&engine);
    return n_steps;
}

static int n_files(const char *dir) {
    char command[256];
    int n = -1;
    snprintf(command, sizeof command, "ls '%s' | wc -l", dir);
    FILE *out = popen(command, "r");
    assert_non_null(out);
    assert_int_equal(fscanf(out, "%d", &n), 1);
    pclose(out);
    return n;
}

static void bounded_steps_answer_alike(void **state) {
    (void)state;
    char dir[] = "/tmp/kvick-costs-XXXXXX", command[64];
    uint32_t expected[N_ANSWER], answer[N_ANSWER];
    assert_non_null(mkdtemp(dir));
    assert_int_equal(ask(start(NULL, 0, 0), expected), 1); /* without a bound the prompt is one step */
    static const int64_t max_step_ns[] = {1, 2000000, 1000000000};
    for (int i = 0; i < 3; i++) {
        int n_guessed = ask(start(NULL, 0, max_step_ns[i]), answer);
        assert_memory_equal(answer, expected, sizeof expected);
        if (i == 0) assert_true(n_guessed > 10);
        assert_int_equal(n_files(dir), i > 0);
        ask(start(dir, 1000000, max_step_ns[i]), answer); /* measured first, kept then */
        assert_memory_equal(answer, expected, sizeof expected);
        assert_int_equal(n_files(dir), 1);
    }
    snprintf(command, sizeof command, "rm -r '%s'", dir);
    assert_int_equal(system(command), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(bounded_steps_answer_alike)};
    return cmocka_run_group_tests(tests, request_run_set_up, request_run_tear_down);
}
