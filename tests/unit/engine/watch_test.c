/* What may be known of a request while it runs: how far its prompt is, told or looked up; and prompts that stay when
 * they are through. */
#include "support/request_run.h"

#include <string.h>

#include "base/thread.h"
#include "support/test.h"

#define CHUNK 64
#define N_PROMPT 200
#define SECOND INT64_C(1000000000)

static struct engine *start(void) {
    struct engine_options options = request_run_options(&request_run_plain, 4, 4 * REQUEST_RUN_MAX_CONTEXT);
    struct status_note note = {0};
    struct engine *engine;
    options.max_chunk = CHUNK;
    options.has_prefix_cache = true;
    if (engine_create(&engine, &options, &note)) fail_msg("%s", note.text);
    return engine;
}

/* Runs a request and notes what is told of its prompt. Returns how many events did. */
static int run_and_note(struct engine *engine, struct request *request, int *out_done, int max) {
    struct event event;
    int n = 0;
    bool has_token = false;
    assert_int_equal(engine_client_submit(engine, request), STATUS_OK);
    do {
        if (!engine_client_wait(engine, 60000, &event)) fail_msg("no event within a minute");
        has_token |= event.kind == EVENT_TOKEN;
        if (event.kind != EVENT_PROGRESS) continue;
        assert_false(has_token); /* a prompt's progress ends with it */
        assert_true(n < max && event.n_cached <= event.n_done && event.owner == request->owner);
        out_done[n++] = event.n_done;
    } while (event.kind != EVENT_FINISHED);
    return n;
}

static void progress_is_told_to_who_asks(void **state) {
    int done[16], owner;
    (void)state;
    struct engine *engine = start();
    struct request *request = request_run_make(N_PROMPT, 3);
    request->tells_progress = true;
    request->owner = &owner;
    int n = run_and_note(engine, request, done, 16);
    assert_int_equal(n, (N_PROMPT + CHUNK - 1) / CHUNK);
    for (int i = 0; i < n; i++) assert_int_equal(done[i], i + 1 == n ? N_PROMPT : (i + 1) * CHUNK);
    assert_int_equal(request->stats.n_done_tokens, N_PROMPT);
    engine_client_free(&request);
    request = request_run_make(N_PROMPT, 3); /* now known: one step is left */
    request->tells_progress = true;
    n = run_and_note(engine, request, done, 16);
    assert_int_equal(n, 1);
    assert_int_equal(done[0], N_PROMPT);
    assert_true(request->stats.n_cached_tokens > N_PROMPT - CHUNK);
    engine_client_free(&request);
    request = request_run_make(N_PROMPT, 3);
    assert_int_equal(run_and_note(engine, request, done, 16), 0);
    engine_client_free(&request);
    engine_destroy(&engine);
}

/* How often the open phase was another one, from submit to the end; 0 if no finished prefill was seen. */
static int look_until_home(struct engine *engine) {
    struct event event;
    struct phase_stats seen, last = {0};
    int n_changes = 0;
    struct request *request = request_run_make(900, 40);
    request->has_cache = false; /* as long each time */
    assert_int_equal(engine_client_submit(engine, request), STATUS_OK);
    for (bool is_home = false; !is_home;) {
        engine_client_look(request, &seen);
        assert_true(seen.submitted_ns > 0 && seen.n_done_tokens >= last.n_done_tokens && seen.n_done_tokens <= 900);
        assert_true(seen.open < N_PHASES && seen.open_ns >= last.open_ns && seen.finished_ns == 0);
        for (int i = 0; i < N_PHASES; i++) assert_true(seen.part_ns[i] >= last.part_ns[i]);
        n_changes += seen.open_ns != last.open_ns;
        last = seen;
        while (engine_client_wait(engine, 0, &event)) is_home |= event.kind == EVENT_FINISHED;
    }
    engine_client_free(&request);
    return last.part_ns[PHASE_PREFILL_OWN] > 0 ? n_changes : 0;
}

static void a_running_request_can_be_looked_at(void **state) {
    int n_changes = 0;
    (void)state;
    struct engine *engine = start();
    /* Queued, prefill, decode at least; on a busy machine who looks may be away while all that happens. */
    for (int i = 0; i < 200 && n_changes < 3; i++) n_changes = look_until_home(engine);
    assert_true(n_changes >= 3);
    engine_destroy(&engine);
}

static struct engine_group_stats settled_group(struct engine *engine, int n_pinned) {
    struct engine_group_stats group = engine_read_stats(engine).groups[0];
    for (int i = 0; i < 5000 && group.n_pinned != n_pinned; i++) {
        thread_sleep_ms(1);
        group = engine_read_stats(engine).groups[0];
    }
    return group;
}

static int run_pinned(struct engine *engine, int n_prompt, int64_t pin_ns, struct request_pin *out_pin) {
    struct request *request = request_run_make(n_prompt, 0);
    request->pin_ns = pin_ns;
    request_run_ask(engine, request);
    int n_cached = request->stats.n_cached_tokens;
    if (out_pin) *out_pin = request->pin;
    engine_client_free(&request);
    return n_cached;
}

static void a_pinned_prompt_stays_for_its_time(void **state) {
    struct request_pin pin;
    (void)state;
    struct engine *engine = start();
    int n_full = 200 / 16 * 16;
    assert_int_equal(run_pinned(engine, 200, 3600 * SECOND, &pin), 0);
    assert_int_equal(pin.n_tokens, n_full);
    assert_int_equal(pin.n_all_blocks, n_full / 16);
    struct engine_group_stats group = settled_group(engine, n_full / 16);
    assert_int_equal(group.n_pinned, n_full / 16);
    assert_int_equal(group.n_held, group.n_pinned);
    assert_int_equal(group.max_pinned, group.n_blocks / 4);
    /* The same again, for a short time: an engine that nobody asks ends it by itself. */
    assert_true(run_pinned(engine, 200, SECOND / 10, &pin) >= n_full - 16);
    assert_int_equal(pin.n_all_blocks, n_full / 16);
    group = settled_group(engine, 0);
    assert_int_equal(group.n_pinned, 0);
    assert_int_equal(group.n_held, 0);
    assert_true(run_pinned(engine, 200, 0, NULL) >= n_full - 16); /* unpinned, still known */
    run_pinned(engine, 1000, 3600 * SECOND, &pin);
    assert_int_equal(pin.n_tokens, 1000 / 16 * 16);
    engine_destroy(&engine); /* with a pin that holds */
}

static void senseless_pins_are_refused(void **state) {
    (void)state;
    struct engine *engine = start();
    struct request *request = request_run_make(50, 5);
    request->pin_ns = SECOND;
    request_run_expect_refusal(engine, request, STATUS_INVALID, "pinned");
    request = request_run_make(50, 0);
    request->pin_ns = SECOND;
    request->has_cache = false;
    request_run_expect_refusal(engine, request, STATUS_INVALID, "no cache");
    engine_destroy(&engine);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(progress_is_told_to_who_asks),
        cmocka_unit_test(a_running_request_can_be_looked_at),
        cmocka_unit_test(a_pinned_prompt_stays_for_its_time),
        cmocka_unit_test(senseless_pins_are_refused),
    };
    return cmocka_run_group_tests(tests, request_run_set_up, request_run_tear_down);
}
