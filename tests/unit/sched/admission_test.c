#include "sched/admission.h"

#include <string.h>

#include "support/sim_world.h"
#include "support/test.h"

static struct sim_world world;
static struct sim_request requests[64];

static void begin(int max_sequences, int n_blocks) {
    struct sim_options options = {.policy = POLICY_PROMISES,
                                  .limits = sim_limits(max_sequences, 512),
                                  .admission = {.max_context = 8192},
                                  .n_blocks = n_blocks,
                                  .block_tokens = 16,
                                  .seed = 1};
    sim_open(&world, &options);
}

static struct admission_candidate ask_for(int n_prompt, int max_new) {
    return (struct admission_candidate){
        .n_prompt = n_prompt, .max_new = max_new, .logits_from = n_prompt, .terms = {.arrival_ns = world.now_ns}};
}

static struct admission_answer answer(const struct admission_candidate *candidate) {
    return admission_answer(&world.admission, &world.state, candidate, world.now_ns);
}

/* Plays n equal requests until end_ns, so that some of them still wait. */
static void fill_queue(int n, int n_prompt, int64_t end_ns) {
    memset(requests, 0, sizeof requests);
    for (int i = 0; i < n; i++) requests[i] = (struct sim_request){.n_prompt = n_prompt, .max_new = 8, .tenant = 1};
    sim_play(&world, requests, n, end_ns);
}

static void what_can_never_be(void **state) {
    (void)state;
    begin(8, 256); /* 4,096 slots */
    struct admission_candidate candidate = ask_for(8000, 200);
    assert_int_equal(answer(&candidate).reason, ADMISSION_CONTEXT);
    assert_true(answer(&candidate).retry_after_ns == 0);
    candidate = ask_for(4000, 98); /* 4,097 are computed */
    assert_int_equal(answer(&candidate).reason, ADMISSION_POOL);
    candidate = ask_for(4000, 97);
    assert_int_equal(answer(&candidate).reason, ADMISSION_ADMITTED);
    world.admission.limits.max_prompt[TERMS_INTERACTIVE] = 3999;
    assert_int_equal(answer(&candidate).reason, ADMISSION_INPUT_CAP);
    candidate.terms.service_class = TERMS_BATCH;
    assert_int_equal(answer(&candidate).reason, ADMISSION_ADMITTED);
    candidate.terms.deadline_ns = SIM_S; /* it takes several seconds even alone */
    assert_int_equal(answer(&candidate).reason, ADMISSION_DEADLINE);
    assert_true(answer(&candidate).retry_after_ns == 0);
    sim_close(&world);
}

static void estimates_of_an_idle_machine_are_exact(void **state) {
    (void)state;
    static const int lengths[] = {1, 15, 64, 500, 1700, 4096, 8000};
    for (int i = 0; i < 7; i++) {
        begin(8, 1024);
        memset(requests, 0, sizeof requests);
        requests[0] = (struct sim_request){.at_ns = 5, .n_prompt = lengths[i], .max_new = 4};
        sim_play(&world, requests, 1, 0);
        double took = (double)(requests[0].first_token_ns - 5), estimate = (double)requests[0].answer.estimate_ns;
        if (took < 0.98 * estimate || took > 1.02 * estimate)
            fail_msg("%d tokens took %.1f ms, predicted %.1f", lengths[i], took / 1e6, estimate / 1e6);
        sim_close(&world);
    }
}

/* What of a prompt is cached need not be waited for. */
static void cached_tokens_count(void **state) {
    (void)state;
    begin(8, 1024);
    struct admission_candidate cold = ask_for(4096, 4), warm = cold;
    warm.n_cached = 4000;
    assert_true(answer(&warm).estimate_ns * 10 < answer(&cold).estimate_ns);
    sim_close(&world);
}

static void a_queue_ahead_makes_it_later(void **state) {
    (void)state;
    begin(32, 4096);
    struct admission_candidate candidate = ask_for(500, 4);
    int64_t alone_ns = answer(&candidate).estimate_ns;
    fill_queue(8, 400, 100 * SIM_MS);
    assert_int_equal(world.state.n_sequences, 8);
    struct admission_answer behind = answer(&candidate);
    assert_int_equal(behind.reason, ADMISSION_ADMITTED);
    assert_true(behind.estimate_ns > 4 * alone_ns);
    /* With a deadline between the two it is refused, and told when it would fit. */
    candidate.terms.deadline_ns = world.now_ns + 2 * alone_ns;
    struct admission_answer late = answer(&candidate);
    assert_int_equal(late.reason, ADMISSION_DEADLINE);
    assert_true(late.retry_after_ns == late.estimate_ns - 2 * alone_ns);
    candidate.terms.deadline_ns = 0;
    world.admission.limits.max_estimate_ns[TERMS_INTERACTIVE] = 2 * alone_ns;
    assert_int_equal(answer(&candidate).reason, ADMISSION_WAIT);
    sim_close(&world);
}

static void queues_are_bounded_and_tenants_leave_room(void **state) {
    (void)state;
    begin(32, 4096);
    fill_queue(6, 400, 100 * SIM_MS);
    world.admission.limits.max_waiting[TERMS_INTERACTIVE] = 12;
    struct admission_candidate same = ask_for(50, 4), other = same;
    world.admission.limits.has_tenants = true;
    assert_int_equal(answer(&same).reason, ADMISSION_ADMITTED); /* there is no other tenant yet */
    world.admission.limits.has_tenants = false;
    same.terms.tenant = admission_tenant(&world.state, 1, 1);
    other.terms.tenant = admission_tenant(&world.state, 2, 1);
    assert_true(same.terms.tenant != other.terms.tenant);
    assert_int_equal(answer(&same).reason, ADMISSION_ADMITTED);
    world.admission.limits.has_tenants = true;
    assert_int_equal(answer(&same).reason, ADMISSION_TENANT_QUEUE);
    assert_true(answer(&same).retry_after_ns > 0);
    assert_int_equal(answer(&other).reason, ADMISSION_ADMITTED);
    world.admission.limits.max_waiting[TERMS_INTERACTIVE] = 6;
    struct admission_answer full = answer(&other);
    assert_int_equal(full.reason, ADMISSION_QUEUE);
    /* By then one of those that wait is through. */
    assert_true(full.retry_after_ns > 0 && full.retry_after_ns < 2 * SIM_S);
    sim_close(&world);
}

/* 3 s are promised to one of 2,600 tokens; what comes later and is shorter may use up its slack, not more. */
static void promises_hold_newcomers_back(void **state) {
    (void)state;
    begin(48, 4096);
    fill_queue(1, 2600, 100 * SIM_MS);
    int n_held = 0, n_promise = 0;
    for (int i = 0; i < 40; i++) {
        struct sim_request request = {.at_ns = world.now_ns, .n_prompt = 300, .max_new = 4, .tenant = 1};
        requests[1] = request;
        sim_play(&world, &requests[1], 1, world.now_ns + 1); /* a step */
        n_held += requests[1].answer.hold_ns > 0;
        n_promise += requests[1].answer.reason == ADMISSION_PROMISE;
    }
    memset(&requests[2], 0, sizeof requests[2]);
    requests[2] = (struct sim_request){.at_ns = world.now_ns, .n_prompt = 16, .max_new = 1};
    sim_play(&world, &requests[2], 1, 0);
    const struct sim_request *promised = &requests[0];
    assert_true(n_held > 0 && n_held + n_promise > 10);
    assert_true(promised->first_token_ns > promised->terms.promise_ns); /* some went ahead */
    assert_true(promised->first_token_ns <= promised->terms.promise_ns + promised->terms.slack_ns);
    sim_close(&world);
}

static void slow_down(double times) {
    struct step_cost *cost = &world.state.cost;
    for (int i = 0; i < cost->n_points; i++) cost->rows_ns[i] *= times;
    cost->prefill_key_ns *= times;
    cost->slowness *= times;
}

/* The machine takes an eighth longer than it did when the long one's time was told: short ones do not pay for that. */
static void a_slower_machine_moves_the_due(void **state) {
    (void)state;
    for (int with = 0; with < 2; with++) {
        begin(48, 4096);
        fill_queue(1, 2600, 100 * SIM_MS);
        const struct terms *promised = &world.state.sequences[0]->terms;
        int64_t told_ns = promised->promise_ns - promised->arrival_ns, slack_ns = promised->slack_ns;
        slow_down(1.125);
        if (!with) world.state.cost.slowness = 1;
        requests[1] = (struct sim_request){.at_ns = world.now_ns, .n_prompt = 16, .max_new = 1};
        sim_play(&world, &requests[1], 1, world.now_ns + 1); /* a step */
        assert_true(promised->slack_ns == (with ? slack_ns + (told_ns + slack_ns) / 8 : slack_ns));
        struct admission_candidate newcomer = ask_for(300, 4);
        assert_true((answer(&newcomer).hold_ns > 0) != with);
        slow_down(1 / 1.125);
        requests[2] = (struct sim_request){.at_ns = world.now_ns, .n_prompt = 16, .max_new = 1};
        sim_play(&world, &requests[2], 1, world.now_ns + 1);
        assert_true(promised->slack_ns == slack_ns); /* fast again */
        sim_close(&world);
    }
}

/* Short prompts that a long one's deadline keeps out are no less to be expected than before. */
static void what_is_refused_is_expected_all_the_same(void **state) {
    (void)state;
    begin(48, 4096);
    struct admission_candidate shorter = ask_for(300, 4), longer = ask_for(2600, 4);
    int64_t alone_ns = answer(&longer).estimate_ns;
    longer.terms.deadline_ns = 2 * alone_ns;
    struct admission_answer refused = {.reason = ADMISSION_DEADLINE}, full = {.reason = ADMISSION_QUEUE};
    assert_int_equal(answer(&longer).reason, ADMISSION_ADMITTED); /* asked only: nothing comes of it */
    for (int i = 0; i < 100; i++) {
        world.now_ns += answer(&shorter).estimate_ns;
        admission_refuse(&world.admission, &world.state, &shorter, &full, world.now_ns);
    }
    longer.terms.deadline_ns = world.now_ns + 2 * alone_ns;
    assert_int_equal(answer(&longer).reason, ADMISSION_ADMITTED);
    for (int i = 0; i < 100; i++) {
        world.now_ns += answer(&shorter).estimate_ns;
        admission_refuse(&world.admission, &world.state, &shorter, &refused, world.now_ns);
    }
    longer.terms.deadline_ns = world.now_ns + 2 * alone_ns;
    assert_int_equal(answer(&longer).reason, ADMISSION_DEADLINE);
    /* Asked a thousand times at once it counts as no more than a server can be offered. */
    double before = load_share(&world.admission.load, world.now_ns);
    assert_true(before > 0.4 && before < 1.1);
    for (int i = 0; i < 1000; i++) admission_refuse(&world.admission, &world.state, &longer, &refused, ++world.now_ns);
    assert_true(load_share(&world.admission.load, world.now_ns) < 2.5);
    sim_close(&world);
}

static void reasons_have_names(void **state) {
    (void)state;
    for (int i = 0; i < ADMISSION_N_REASONS; i++) {
        assert_true(strlen(admission_reason_name((enum admission_reason)i)) > 0);
        assert_true(strlen(admission_reason_text((enum admission_reason)i)) > 0);
    }
    assert_string_equal(admission_reason_name(ADMISSION_TENANT_QUEUE), "tenant_queue");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_can_never_be),
        cmocka_unit_test(estimates_of_an_idle_machine_are_exact),
        cmocka_unit_test(cached_tokens_count),
        cmocka_unit_test(a_queue_ahead_makes_it_later),
        cmocka_unit_test(queues_are_bounded_and_tenants_leave_room),
        cmocka_unit_test(promises_hold_newcomers_back),
        cmocka_unit_test(a_slower_machine_moves_the_due),
        cmocka_unit_test(what_is_refused_is_expected_all_the_same),
        cmocka_unit_test(reasons_have_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
