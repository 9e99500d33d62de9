#include "sched/policy.h"

#include "support/test.h"

#define MS INT64_C(1000000)
#define S INT64_C(1000000000)
#define MAX 8

static struct policy policy;
static struct terms terms[MAX];
static struct policy_prompt prompts[MAX];
static int order[MAX], n_prompts;

static const struct step_pace pace = {.limit_ns = 60 * MS, .row_ns = 1e6, .stretch = 1};

static void begin(enum policy_kind kind) {
    policy_init(&policy, kind);
    n_prompts = 0;
}

static struct terms *add(int tenant, int64_t arrival_ns, int64_t work_ns) {
    terms[n_prompts] = (struct terms){.tenant = tenant, .arrival_ns = arrival_ns};
    prompts[n_prompts] = (struct policy_prompt){.terms = &terms[n_prompts], .work_ns = work_ns, .owner = -1};
    return &terms[n_prompts++];
}

static struct terms *add_promised(int64_t arrival_ns, int64_t work_ns, int64_t promise_ns, int64_t slack_ns) {
    struct terms *added = add(0, arrival_ns, work_ns);
    added->promise_ns = promise_ns;
    added->slack_ns = slack_ns;
    return added;
}

static void check_order(int64_t now_ns, int n, const int *expected) {
    policy_refresh(&policy, prompts, n_prompts);
    policy_order(&policy, prompts, n_prompts, now_ns, &pace, order);
    assert_int_equal(n, n_prompts);
    for (int i = 0; i < n; i++)
        if (order[i] != expected[i]) fail_msg("place %d is %d's, not %d's", i, order[i], expected[i]);
}

#define CHECK_ORDER(now_ns, ...)                                                                                       \
    check_order(now_ns, (int)(sizeof((int[]){__VA_ARGS__}) / sizeof(int)), (int[]){__VA_ARGS__})

static void shortest_first_and_fcfs(void **state) {
    (void)state;
    begin(POLICY_PROMISES);
    add(0, 1, 300 * MS), add(0, 2, 100 * MS), add(0, 3, 200 * MS);
    CHECK_ORDER(10, 1, 2, 0);
    policy.kind = POLICY_FCFS;
    CHECK_ORDER(10, 0, 1, 2);
}

static void priority_goes_before_length(void **state) {
    (void)state;
    begin(POLICY_PROMISES);
    add(0, 1, 300 * MS)->priority = -1, add(0, 2, 100 * MS);
    CHECK_ORDER(10, 0, 1);
}

static void who_sends_more_waits_behind_its_own(void **state) {
    (void)state;
    begin(POLICY_PROMISES);
    add(1, 1, 100 * MS), add(1, 2, 100 * MS), add(1, 3, 100 * MS), add(2, 4, 150 * MS);
    CHECK_ORDER(10, 0, 3, 1, 2);
    policy.weights[1] = 4; /* 25, 50 and 75 by its weight */
    CHECK_ORDER(10, 0, 1, 2, 3);
}

static void what_was_received_counts(void **state) {
    (void)state;
    begin(POLICY_PROMISES);
    add(1, 1, 100 * MS), add(2, 2, 110 * MS);
    CHECK_ORDER(10, 0, 1);
    policy_charge(&policy, &terms[0], 50 * MS);
    CHECK_ORDER(10, 1, 0);
}

static void a_promise_at_stake_goes_first(void **state) {
    (void)state;
    begin(POLICY_PROMISES);
    add_promised(0, 2 * S, 2500 * MS, 600 * MS); /* due at 3.1 s, takes 2 s */
    add_promised(1, 100 * MS, 900 * MS, 200 * MS);
    CHECK_ORDER(100 * MS, 1, 0);
    /* At 1 s there are 2.1 s left for both: 2.1 and two steps are more. */
    terms[1].promise_ns = 2 * S, terms[1].slack_ns = S;
    CHECK_ORDER(900 * MS, 1, 0);
    add(0, 2, 50 * MS);
    CHECK_ORDER(900 * MS, 1, 0, 2);
    CHECK_ORDER(100 * MS, 2, 1, 0);
}

static void who_cannot_be_on_time_makes_nobody_late(void **state) {
    (void)state;
    begin(POLICY_PROMISES);
    add_promised(0, 9 * S, S, 250 * MS); /* hopeless */
    add_promised(1, S, 4 * S, S);
    add(0, 2, 10 * MS);
    CHECK_ORDER(3 * S, 2, 1, 0);
    CHECK_ORDER(3900 * MS, 1, 2, 0);
}

static void overdue_ones_come_by_age(void **state) {
    (void)state;
    begin(POLICY_PROMISES);
    add(0, S, 9 * S), add(0, 0, 8 * S), add(0, 70 * S, 10 * MS);
    int64_t now_ns = POLICY_INTERACTIVE_PATIENCE_NS + S;
    CHECK_ORDER(now_ns, 1, 2, 0);
    CHECK_ORDER(now_ns + S, 1, 0, 2);
}

static void held_ones_let_others_go_first(void **state) {
    (void)state;
    begin(POLICY_PROMISES);
    add(0, 1, 10 * MS)->hold_ns = S, add(0, 2, 100 * MS);
    CHECK_ORDER(10, 1, 0);
    CHECK_ORDER(S, 0, 1);
}

static void preempted_ones_go_first(void **state) {
    (void)state;
    begin(POLICY_PROMISES);
    add(0, 1, 10 * MS), add(0, 2, 9 * S);
    prompts[1].is_resumed = true;
    CHECK_ORDER(10, 1, 0);
}

static void batch_waits_but_gets_its_share(void **state) {
    (void)state;
    begin(POLICY_PROMISES);
    add(0, 1, 10 * MS)->service_class = TERMS_BATCH, add(0, 2, 100 * MS);
    CHECK_ORDER(10, 1, 0);
    int n_batch = 0;
    for (int step = 0; step < 1000; step++) {
        policy_refresh(&policy, prompts, n_prompts);
        policy_order(&policy, prompts, n_prompts, 10, &pace, order);
        n_batch += order[0] == 0;
        policy_charge(&policy, &terms[order[0]], pace.limit_ns);
    }
    assert_in_range(n_batch, 45, 55);
}

/* What it had while nobody interactive waited is a part of its share. */
static void batch_work_alone_uses_up_its_share(void **state) {
    (void)state;
    begin(POLICY_PROMISES);
    add(0, 1, 10 * MS)->service_class = TERMS_BATCH, add(0, 2, 100 * MS);
    policy_refresh(&policy, prompts, n_prompts);
    policy_charge(&policy, &terms[1], 10 * S);
    CHECK_ORDER(10, 0, 1);
    n_prompts = 1;
    policy_refresh(&policy, prompts, n_prompts);
    policy_charge(&policy, &terms[0], S);
    n_prompts = 2;
    CHECK_ORDER(10, 1, 0);
}

static void late_batch_passes_longer_prompts_that_have_time(void **state) {
    (void)state;
    begin(POLICY_PROMISES);
    add_promised(1, 200 * MS, S, 250 * MS)->service_class = TERMS_BATCH;
    add_promised(2, 3 * S, 10 * S, 2500 * MS), add_promised(3, 50 * MS, 10 * S, 2500 * MS);
    CHECK_ORDER(500 * MS, 2, 1, 0);
    CHECK_ORDER(S, 2, 0, 1);     /* due in 250 ms: it cannot wait for the long one, and may not pass the short one */
    CHECK_ORDER(3 * S, 2, 1, 0); /* it is late whatever is done */
    terms[1].promise_ns = 4 * S, terms[1].slack_ns = 100 * MS;
    CHECK_ORDER(S, 1, 2, 0); /* whose own promise is at stake */
    terms[0].promise_ns = 0;
    terms[1].promise_ns = 10 * S;
    CHECK_ORDER(S, 2, 1, 0); /* nothing was promised */
}

static void a_waiter_lends_its_place(void **state) {
    (void)state;
    begin(POLICY_PROMISES);
    add(0, 1, 900 * MS), add(0, 2, 100 * MS), add(0, 3, 10 * MS);
    prompts[2].owner = 0;
    CHECK_ORDER(10, 0, 2, 1);
    prompts[2].owner = 1, prompts[1].owner = 0; /* a chain */
    CHECK_ORDER(10, 0, 1, 2);
}

static void a_storm_gives_way(void **state) {
    (void)state;
    begin(POLICY_PROMISES);
    for (int i = 0; i < 4; i++) add_promised(i, 50 * MS, 100 * MS, 60 * MS)->tenant = 1;
    add(2, 9, 400 * MS);
    CHECK_ORDER(10, 0, 1, 2, 3, 4);
    policy.is_heavy[1] = true;
    CHECK_ORDER(10, 4, 0, 1, 2, 3);
    policy_charge(&policy, &terms[4], S); /* now the other one has received more */
    CHECK_ORDER(10, 0, 1, 2, 3, 4);
}

static void who_gives_way_anyway_counts_little(void **state) {
    (void)state;
    begin(POLICY_PROMISES);
    add(0, 1, 10 * MS), add(0, 2, 20 * MS)->hold_ns = S, add(0, 3, 30 * MS)->service_class = TERMS_BATCH;
    add_promised(4, 100 * MS, 110 * MS, 10 * MS);
    CHECK_ORDER(10, 3, 0, 1, 2);
    assert_true(policy_weight(&prompts[0]) == 1 && policy_weight(&prompts[3]) == 1);
    assert_true(policy_weight(&prompts[1]) < 0.1 && policy_weight(&prompts[2]) < 0.1);
    terms[2].service_class = TERMS_INTERACTIVE;
    CHECK_ORDER(10, 3, 0, 2, 1);
    assert_true(policy_weight(&prompts[2]) == 1);
}

static void tenants_have_slots(void **state) {
    (void)state;
    bool in_use[TERMS_MAX_TENANTS] = {false};
    begin(POLICY_PROMISES);
    int a = policy_tenant(&policy, 700, 2, in_use);
    in_use[a] = true;
    int b = policy_tenant(&policy, 701, 1, in_use);
    assert_true(a != b && policy.weights[a] == 2);
    assert_int_equal(policy_tenant(&policy, 700, 3, in_use), a);
    assert_true(policy.weights[a] == 3);
    for (int t = 0; t < TERMS_MAX_TENANTS; t++) in_use[t] = true;
    assert_in_range(policy_tenant(&policy, 999, 1, in_use), 0, TERMS_MAX_TENANTS - 1); /* shares one */
    in_use[b] = false;
    assert_int_equal(policy_tenant(&policy, 999, 1, in_use), b); /* takes an idle one's */
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shortest_first_and_fcfs),
        cmocka_unit_test(priority_goes_before_length),
        cmocka_unit_test(who_sends_more_waits_behind_its_own),
        cmocka_unit_test(what_was_received_counts),
        cmocka_unit_test(a_promise_at_stake_goes_first),
        cmocka_unit_test(who_cannot_be_on_time_makes_nobody_late),
        cmocka_unit_test(overdue_ones_come_by_age),
        cmocka_unit_test(held_ones_let_others_go_first),
        cmocka_unit_test(preempted_ones_go_first),
        cmocka_unit_test(batch_waits_but_gets_its_share),
        cmocka_unit_test(batch_work_alone_uses_up_its_share),
        cmocka_unit_test(late_batch_passes_longer_prompts_that_have_time),
        cmocka_unit_test(a_waiter_lends_its_place),
        cmocka_unit_test(a_storm_gives_way),
        cmocka_unit_test(who_gives_way_anyway_counts_little),
        cmocka_unit_test(tenants_have_slots),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
