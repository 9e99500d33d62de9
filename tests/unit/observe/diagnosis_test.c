/* diagnosis: what each rule says of made-up records, and that the rest is silent. Recorded runs: diagnosis_runs_test.
 */
#include "support/test.h"

#include <stdio.h>
#include <string.h>

#include "base/rng.h"
#include "observe/diagnosis.h"

#define MS 1000000
#define S 1000000000LL

/* A traffic: so many requests a second, each about so. */
struct traffic {
    double per_s;
    const char *key;
    int n_prompt, n_cached, n_output;
    double before_ms, text_ms, read_ms, queue_ms, own_ms, lost_ms, itl_ms, blocked_ms;
    double promised_x; /* of what it will be; 0: nothing is promised */
    enum admission_reason refusal;
};

static const struct traffic usual = {.per_s = 4,
                                     .key = "alice",
                                     .n_prompt = 300,
                                     .n_cached = 250,
                                     .n_output = 30,
                                     .before_ms = 1,
                                     .text_ms = 1,
                                     .read_ms = 0.1,
                                     .queue_ms = 8,
                                     .own_ms = 40,
                                     .itl_ms = 10,
                                     .promised_x = 1};

static struct diagnosis *diagnosis;
static struct engine_stats engine;
static int64_t now_ns;
static uint32_t n_made;
static int n_begun, n_ended;

static void on_change(void *owner, const struct diagnosis_change *change) {
    (void)owner;
    n_begun += change->is_begin;
    n_ended += !change->is_begin;
}

static void begin(int64_t slo_ns) {
    struct diagnosis_window_options options = diagnosis_options();
    options.slo_ttft_ns[REQUEST_INTERACTIVE] = slo_ns;
    diagnosis_destroy(&diagnosis);
    assert_int_equal(diagnosis_create(&diagnosis, &options), STATUS_OK);
    diagnosis_listen(diagnosis, on_change, NULL);
    memset(&engine, 0, sizeof engine);
    engine.groups[0].n_blocks = 1000;
    engine.groups[0].n_held = 200;
    now_ns = 1000 * S;
    n_begun = n_ended = 0;
    n_made = 0;
}

static int end(void **state) {
    (void)state;
    diagnosis_destroy(&diagnosis);
    return 0;
}

/* A third more or less. */
static int64_t about_ns(double ms) {
    return (int64_t)(ms * MS * (0.67 + 0.66 * rng_uniform(7, 0, n_made++)));
}

static void send(const struct traffic *traffic) {
    struct diagnosis_record record = {.was_run = traffic->refusal == ADMISSION_ADMITTED,
                                      .refusal = traffic->refusal,
                                      .key = traffic->key,
                                      .n_prompt = traffic->n_prompt,
                                      .n_cached = traffic->n_cached,
                                      .n_output = traffic->n_output,
                                      .n_choices = 1};
    record.part_ns[PHASE_READ] = about_ns(traffic->read_ms);
    record.part_ns[PHASE_PREPROCESS] = about_ns(traffic->before_ms);
    record.part_ns[PHASE_TEXT_QUEUE] = about_ns(traffic->text_ms);
    record.part_ns[PHASE_QUEUE] = about_ns(traffic->queue_ms);
    record.part_ns[PHASE_PREFILL_OWN] = about_ns(traffic->own_ms);
    record.part_ns[PHASE_PREFILL_LOST] = about_ns(traffic->lost_ms);
    for (int i = 0; i < N_PHASES; i++) record.ttft_ns += record.part_ns[i];
    record.part_ns[PHASE_DECODE] = (int64_t)(traffic->n_output - 1) * about_ns(traffic->itl_ms);
    record.part_ns[PHASE_BLOCKED] = about_ns(traffic->blocked_ms);
    record.promised_ns = (int64_t)((double)record.ttft_ns * traffic->promised_x);
    diagnosis_note(diagnosis, &record, now_ns);
}

/* Both kinds of traffic for so long; other NULL: one. A sample each second. */
static void run(int seconds, const struct traffic *one, const struct traffic *other) {
    const struct traffic *both[] = {one, other};
    for (int s = 0; s < seconds; s++, now_ns += S) {
        for (int i = 0; i < 2; i++)
            for (double k = 0; both[i] && rng_uniform(9, 1, n_made) + k < both[i]->per_s; k++) send(both[i]);
        engine.n_steps += 50;
        engine.n_rows += 200;
        engine.n_prefill_rows += 100;
        diagnosis_sample(diagnosis, &engine, now_ns);
    }
}

static void holds_alone(const char *rule) {
    int n_rules;
    const struct diagnosis_rule *rules = diagnosis_rules_table(&n_rules);
    for (int i = 0; i < n_rules; i++) {
        const char *sentence = diagnosis_sentence(diagnosis, rules[i].name);
        bool is_wanted = rule && strcmp(rule, rules[i].name) == 0;
        if ((sentence != NULL) != is_wanted) fail_msg("%s: %s", rules[i].name, sentence ? sentence : "is silent");
    }
}

static void says(const char *rule, const char *words) {
    const char *sentence = diagnosis_sentence(diagnosis, rule);
    if (!sentence || !strstr(sentence, words)) fail_msg("'%s' lacks '%s'", sentence ? sentence : "", words);
}

/* The usual traffic, then what is wrong beside or in place of it; the rule alone holds, with words in its sentence. */
static void shows(const struct traffic *one, const struct traffic *other, const char *rule, const char *words) {
    run(200, &usual, NULL);
    holds_alone(NULL);
    run(70, one, other);
    holds_alone(rule);
    if (words) says(rule, words);
}

static void ten_minutes_of_usual_load_are_silent(void **state) {
    (void)state;
    begin(0);
    run(600, &usual, NULL);
    assert_int_equal(n_begun, 0);
    holds_alone(NULL);
}

static void one_key_that_storms_is_named_with_its_share(void **state) {
    struct traffic mates = usual, storm = usual;
    (void)state;
    begin(0);
    mates.queue_ms = storm.queue_ms = 400;
    storm.key = "agent";
    storm.n_cached = 0;
    storm.n_prompt = 400;
    storm.itl_ms = mates.itl_ms = 12;
    shows(&mates, &storm, "prefill_storm", "decode flat: 91 % of it is queue");
    says("prefill_storm", "key agent sent 89 % of the prefill tokens");
}

static void decode_is_no_part_of_first_tokens(void **state) {
    struct traffic mates = usual, storm = usual;
    (void)state;
    begin(0);
    mates.queue_ms = storm.queue_ms = 400;
    mates.itl_ms = storm.itl_ms = 40; /* a second more for each answer, and no matter here */
    storm.key = "agent";
    storm.n_cached = 0;
    storm.n_prompt = 400;
    shows(&mates, &storm, "prefill_storm", "decode x4.0: 91 % of it is queue");
}

static void the_same_from_everybody_is_overload(void **state) {
    struct traffic more = usual, other = usual;
    (void)state;
    begin(0);
    more.per_s = other.per_s = 8;
    more.queue_ms = other.queue_ms = 500;
    other.key = "bob";
    more.n_cached = 0;
    shows(&more, &other, "overload", "requests a second (x4");
}

static void refusals_alone_are_overload(void **state) {
    struct traffic refused = usual;
    (void)state;
    begin(0);
    refused.refusal = ADMISSION_DEADLINE;
    refused.per_s = 1;
    shows(&usual, &refused, "overload", "refused");
}

static void prompts_that_became_longer_are_no_queue(void **state) {
    struct traffic longer = usual;
    (void)state;
    begin(0);
    longer.n_prompt = 1800;
    longer.own_ms = 1200;
    shows(&longer, NULL, "long_prompts", "tokens (x6.0)");
}

static void few_long_prompts_are_interference(void **state) {
    struct traffic whale = usual, mates = usual;
    (void)state;
    begin(0);
    whale.key = "ingest";
    whale.per_s = 0.4;
    whale.n_prompt = 6000;
    whale.n_cached = 0;
    whale.own_ms = 3000;
    mates.queue_ms = 300;
    mates.lost_ms = 200;
    shows(&mates, &whale, "interference", "most from key ingest");
}

static void a_lost_cache_is_told_with_its_reason(void **state) {
    struct traffic cold = usual;
    (void)state;
    begin(0);
    cold.n_cached = 0;
    cold.own_ms = 70;
    engine.n_misses[PREFIX_MISS_NEW] = 10;
    run(200, &usual, NULL);
    for (int i = 0; i < 70; i++) {
        engine.n_misses[PREFIX_MISS_NEW] += 4;
        run(1, &cold, NULL);
    }
    holds_alone("cache_lost");
    says("cache_lost", "the median request finds 0 % of its prompt in the cache, before 83 %");
    says("cache_lost", "nothing in the cache begins like these prompts");
}

static void long_prompts_of_few_lose_no_cache(void **state) {
    struct traffic whale = usual;
    (void)state;
    begin(0);
    whale.per_s = 0.4;
    whale.n_prompt = 6000;
    whale.n_cached = 0;
    shows(&usual, &whale, NULL, NULL); /* two thirds of the tokens are new, and nobody finds less */
}

static void preemptions_are_a_full_cache(void **state) {
    struct traffic waiting = usual;
    (void)state;
    begin(0);
    waiting.queue_ms = 300;
    run(200, &usual, NULL);
    engine.groups[0].n_held = 990;
    for (int i = 0; i < 70; i++) {
        engine.n_preempted++;
        run(1, &waiting, NULL);
    }
    holds_alone("kv_full");
}

static void decode_is_told_apart_from_first_tokens(void **state) {
    struct traffic slow = usual;
    (void)state;
    begin(0);
    slow.itl_ms = 25;
    slow.per_s = 8;
    engine.classes[0].n_running = 3;
    run(200, &usual, NULL);
    engine.classes[0].n_running = 12;
    run(70, &slow, NULL);
    holds_alone("slow_decode");
    says("slow_decode", "12.0 requests run at a time, before 3.");
}

static void what_comes_before_the_engine_has_its_own_rules(void **state) {
    struct traffic hook = usual, text = usual, upload = usual;
    (void)state;
    begin(0);
    hook.before_ms = 300;
    text.text_ms = 300;
    upload.read_ms = 300;
    shows(&hook, NULL, "slow_hook", "preprocess");
    begin(0);
    shows(&text, NULL, "slow_text", "text_queue");
    begin(0);
    shows(&upload, NULL, "slow_upload", "bodies");
}

static void who_does_not_read_is_no_decode(void **state) {
    struct traffic slow = usual;
    (void)state;
    begin(0);
    slow.blocked_ms = 2000;
    shows(&slow, NULL, "slow_readers", "did not read");
}

static void late_promises_name_what_became_dear(void **state) {
    struct traffic late = usual;
    (void)state;
    begin(0);
    late.own_ms = 160;
    late.promised_x = 0.6;
    shows(&late, NULL, "late_promises", "x3.7 of prefill_own: others use this machine's cores");
}

static void throughput_may_be_up_while_the_slo_burns(void **state) {
    struct traffic more = usual;
    (void)state;
    begin(80 * MS);
    more.per_s = 12;
    more.queue_ms = 35;
    shows(&more, NULL, "slo_burn", "throughput is up and the SLO burns");
}

/* ---- the window ---- */

static void a_trouble_that_lasts_is_not_taken_for_usual(void **state) {
    struct traffic storm = usual;
    (void)state;
    begin(0);
    storm.queue_ms = 500;
    run(300, &usual, NULL);
    run(900, &storm, NULL);
    holds_alone("overload");
    run(120, &usual, NULL);
    holds_alone(NULL);
    assert_int_equal(n_begun, 1);
    assert_int_equal(n_ended, 1);
    run(1200, &storm, NULL); /* more than half an hour: so it is here */
    holds_alone("overload");
    run(1200, &storm, NULL);
    holds_alone(NULL);
}

static void a_pause_is_no_trouble(void **state) {
    (void)state;
    begin(0);
    run(200, &usual, NULL);
    now_ns += 86400 * S;
    run(200, &usual, NULL);
    assert_int_equal(n_begun, 0);
}

static void a_few_slow_requests_say_nothing(void **state) {
    struct traffic slow = usual;
    (void)state;
    begin(0);
    slow.queue_ms = 5000;
    slow.per_s = 3;
    run(200, &usual, NULL);
    run(2, &slow, NULL); /* 6 among 60 s of others, less than a p95 needs */
    run(58, &usual, NULL);
    holds_alone(NULL);
}

static void keys_without_end_need_no_memory(void **state) {
    struct traffic one = usual;
    char name[300];
    (void)state;
    begin(0);
    for (int i = 0; i < 500; i++) {
        snprintf(name, sizeof name, "%0250d", i);
        one.key = name;
        run(1, &one, NULL);
    }
    one.key = NULL;
    run(70, &one, NULL);
    holds_alone(NULL);
}

static void json_says_it_too(void **state) {
    struct traffic storm = usual;
    struct json_write json;
    struct str out;
    (void)state;
    begin(0);
    storm.queue_ms = 500;
    run(200, &usual, NULL);
    run(70, &storm, NULL);
    str_init(&out, 10000);
    json_write_init(&json, &out);
    json_write_object(&json);
    diagnosis_write(diagnosis, now_ns, &json);
    json_write_field_object(&json, "engine");
    diagnosis_write_sample(&engine, &json);
    json_write_end_object(&json);
    json_write_end_object(&json);
    assert_int_equal(json_write_finish(&json), STATUS_OK);
    assert_non_null(strstr(out.ptr, "{\"diagnosis\":[{\"rule\":\"overload\",\"sentence\":\"TTFT p95 "));
    assert_non_null(strstr(out.ptr, "\"since_ms\":"));
    assert_non_null(strstr(out.ptr, "\"engine\":{\"running\":0,\"waiting\":0,\"blocks\":1000,\"held_blocks\":200"));
    str_deinit(&out);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ten_minutes_of_usual_load_are_silent),
        cmocka_unit_test(one_key_that_storms_is_named_with_its_share),
        cmocka_unit_test(decode_is_no_part_of_first_tokens),
        cmocka_unit_test(the_same_from_everybody_is_overload),
        cmocka_unit_test(refusals_alone_are_overload),
        cmocka_unit_test(prompts_that_became_longer_are_no_queue),
        cmocka_unit_test(few_long_prompts_are_interference),
        cmocka_unit_test(a_lost_cache_is_told_with_its_reason),
        cmocka_unit_test(long_prompts_of_few_lose_no_cache),
        cmocka_unit_test(preemptions_are_a_full_cache),
        cmocka_unit_test(decode_is_told_apart_from_first_tokens),
        cmocka_unit_test(what_comes_before_the_engine_has_its_own_rules),
        cmocka_unit_test(who_does_not_read_is_no_decode),
        cmocka_unit_test(late_promises_name_what_became_dear),
        cmocka_unit_test(throughput_may_be_up_while_the_slo_burns),
        cmocka_unit_test(a_trouble_that_lasts_is_not_taken_for_usual),
        cmocka_unit_test(a_pause_is_no_trouble),
        cmocka_unit_test(a_few_slow_requests_say_nothing),
        cmocka_unit_test(keys_without_end_need_no_memory),
        cmocka_unit_test(json_says_it_too),
    };
    return cmocka_run_group_tests(tests, NULL, end);
}
