/* What the scheduler is for, each as a scene on a fake clock: a whale, a storm, an overload, batch work. */
#include <stdlib.h>
#include <string.h>

#include "bench/offline_bound.h"
#include "support/sim_world.h"
#include "support/test.h"

#define MAX_REQUESTS 8000

static struct sim_request requests[MAX_REQUESTS];
static int64_t values[MAX_REQUESTS];

static struct sim_options ordinary(void) {
    return (struct sim_options){.policy = POLICY_PROMISES,
                                .limits = sim_limits(48, 512),
                                .admission = {.max_context = 8192},
                                .n_blocks = 4096,
                                .block_tokens = 16,
                                .seed = 1};
}

static int by_arrival(const void *a, const void *b) {
    const struct sim_request *x = a, *y = b;
    return (x->at_ns > y->at_ns) - (x->at_ns < y->at_ns);
}

/* Appends Poisson arrivals over [0, duration) of prompts of low..high tokens that take a share load of the machine. */
static int add_poisson(int n, uint64_t seed, double load, double duration_s, int low, int high, int max_new,
                       struct sim_request like) {
    struct step_cost cost;
    sim_cost(&cost);
    double at_ns = 0, mean_ns = (double)sim_least_work_ns(&cost, (low + high) / 2);
    for (uint32_t i = 0;; i++) {
        at_ns += sim_exponential(rng_uniform(seed, 200, i)) * mean_ns / load;
        if (at_ns >= duration_s * 1e9) return n;
        assert_true(n < MAX_REQUESTS);
        requests[n] = like;
        requests[n].at_ns = (int64_t)at_ns;
        requests[n].n_prompt = low + (int)(rng_uniform(seed, 201, i) * (high - low + 1));
        requests[n].max_new = max_new;
        n++;
    }
}

static void play(const struct sim_options *options, int n, struct sim_world *out_world) {
    qsort(requests, (size_t)n, sizeof *requests, by_arrival);
    sim_open(out_world, options);
    sim_play(out_world, requests, n, 0);
    sim_close(out_world);
}

/* p95 of the time to the first token, from arrival, over admitted requests that pass; *out_n_refused: the others. */
typedef bool passes_fn(const struct sim_request *request);
static int64_t p95_of(int n, passes_fn *passes, int *out_n_refused) {
    int n_values = 0;
    *out_n_refused = 0;
    for (int i = 0; i < n; i++) {
        if (!passes(&requests[i])) continue;
        if (requests[i].answer.reason)
            ++*out_n_refused;
        else
            values[n_values++] = requests[i].first_token_ns - requests[i].at_ns;
    }
    return sim_percentile(values, n_values, 0.95);
}

static bool is_short(const struct sim_request *request) {
    return request->n_prompt <= 512;
}

static bool is_of_others(const struct sim_request *request) {
    return request->tenant > 0;
}

static bool is_interactive(const struct sim_request *request) {
    return request->service_class == TERMS_INTERACTIVE;
}

/* ---- scenes ---- */

static int64_t stream_gap(const struct sim_options *options, int64_t *out_whale_ns) {
    struct sim_world world;
    requests[0] = (struct sim_request){.n_prompt = 64, .max_new = 500};
    requests[1] = (struct sim_request){.at_ns = SIM_S, .n_prompt = 4096, .max_new = 4};
    play(options, 2, &world);
    assert_true(requests[0].first_token_ns && requests[1].first_token_ns);
    *out_whale_ns = requests[1].first_token_ns - requests[1].at_ns;
    return requests[0].longest_gap_ns;
}

static void a_stream_goes_on_beside_a_whale(void **state) {
    (void)state;
    struct sim_options options = ordinary();
    int64_t whale_ns, freeze_ns, gap_ns = stream_gap(&options, &whale_ns);
    print_message("gap %.0f ms, whale %.2f s\n", (double)gap_ns / 1e6, (double)whale_ns / 1e9);
    assert_true(gap_ns <= options.limits.step.target_itl_ns * 3 / 2);
    options.limits = sim_limits(48, 8192);
    options.limits.step.is_unbounded = true;
    int64_t unchunked_gap_ns = stream_gap(&options, &freeze_ns);
    print_message("unchunked: gap %.0f ms, whale %.2f s\n", (double)unchunked_gap_ns / 1e6, (double)freeze_ns / 1e9);
    assert_true(unchunked_gap_ns > SIM_S);
    assert_true(whale_ns < 4 * freeze_ns); /* prompts get a quarter of the time or more */
}

static void short_ones_hardly_notice_whales(void **state) {
    (void)state;
    struct sim_options options = ordinary();
    struct sim_world world;
    int n_refused, n = add_poisson(0, 1, 0.25, 200, 32, 256, 12, (struct sim_request){0});
    play(&options, n, &world);
    int64_t without_ns = p95_of(n, is_short, &n_refused);
    assert_int_equal(n_refused, 0);
    n = add_poisson(0, 1, 0.25, 200, 32, 256, 12, (struct sim_request){0});
    for (int i = 0; i < 12; i++)
        requests[n++] = (struct sim_request){.at_ns = (5 + 15 * i) * SIM_S, .n_prompt = 4096, .max_new = 8};
    play(&options, n, &world);
    int64_t with_ns = p95_of(n, is_short, &n_refused);
    print_message("p95 without whales %.0f ms, with %.0f ms, %d refused\n", (double)without_ns / 1e6,
                  (double)with_ns / 1e6, n_refused);
    assert_true(with_ns <= without_ns + 2 * options.limits.step.max_step_ns);
    assert_true(n_refused * 100 <= n);
}

static void a_storm_hits_its_own_tenant(void **state) {
    (void)state;
    int64_t p95_ns[2];
    for (int is_storm = 0; is_storm <= 1; is_storm++) {
        struct sim_options options = ordinary();
        struct sim_world world;
        int n = 0, n_refused;
        options.admission.has_tenants = true;
        for (uint64_t t = 0; t < 4; t++) {
            double load = t == 0 && is_storm ? 0.9 : 0.09;
            n = add_poisson(n, 10 + t, load, 200, 64, 400, 12, (struct sim_request){.tenant = t});
        }
        play(&options, n, &world);
        p95_ns[is_storm] = p95_of(n, is_of_others, &n_refused);
        print_message("others' p95 %.0f ms, %d of them refused\n", (double)p95_ns[is_storm] / 1e6, n_refused);
        assert_true(n_refused * 50 <= n);
    }
    assert_true(p95_ns[1] <= p95_ns[0] * 3 / 2);
}

/* Requests that had their first token within their deadline, of all that were offered. */
static int count_in_time(int n) {
    int n_in_time = 0;
    for (int i = 0; i < n; i++) {
        const struct sim_request *r = &requests[i];
        n_in_time += r->first_token_ns && r->first_token_ns <= r->at_ns + r->patience_ns;
    }
    return n_in_time;
}

/* Requests of the mix: a fifth are whales. */
static int make_mix(uint64_t seed) {
    for (int i = 0; i < 400; i++) {
        uint32_t u = (uint32_t)i;
        bool is_whale = rng_uniform(seed, 300, u) < 0.2;
        int low = is_whale ? 2048 : 64, high = is_whale ? 4096 : 448;
        int n_prompt = low + (int)(rng_uniform(seed, 301, u) * (high - low));
        requests[i] = (struct sim_request){.n_prompt = n_prompt, .max_new = 16};
    }
    return 400;
}

/* What the machine does in a time when there is always more to do, in sim_least_work_ns of prompts: below 1, because
 * steps are bounded and answers are decoded. */
static double measure_capacity(void) {
    static double capacity; /* measured once */
    if (capacity > 0) return capacity;
    struct sim_world world;
    struct sim_options options = ordinary();
    struct step_cost cost;
    double work_ns = 0;
    int n = make_mix(77);
    sim_cost(&cost);
    options.policy = POLICY_FCFS;
    options.limits.max_sequences = options.limits.max_logit_rows = 400;
    options.limits.max_rows = 512 + 400;
    options.n_blocks = 0; /* room for all at once */
    for (int i = 0; i < n; i++) {
        options.n_blocks += (requests[i].n_prompt + requests[i].max_new) / options.block_tokens + 2;
        work_ns += (double)sim_least_work_ns(&cost, requests[i].n_prompt);
    }
    play(&options, n, &world);
    return capacity = work_ns / (double)world.busy_ns;
}

/* Poisson arrivals at 1.5 times the capacity; deadline: twice the time alone and half a second. */
static int make_overload(uint64_t seed, double capacity) {
    struct step_cost cost;
    double at_ns = 0, work_ns = 0;
    int n = make_mix(seed);
    sim_cost(&cost);
    for (int i = 0; i < n; i++) work_ns += (double)sim_least_work_ns(&cost, requests[i].n_prompt);
    for (int i = 0; i < n; i++) {
        int64_t alone_ns = sim_least_work_ns(&cost, requests[i].n_prompt) * 6 / 5; /* in steps of 60 ms */
        at_ns += sim_exponential(rng_uniform(seed, 302, (uint32_t)i)) * work_ns / n / capacity / 1.5;
        requests[i].at_ns = (int64_t)at_ns;
        requests[i].patience_ns = 2 * alone_ns + SIM_S / 2;
    }
    return n;
}

static double bound_of(int n, double capacity) {
    static struct offline_job jobs[MAX_REQUESTS];
    struct step_cost cost;
    double bound;
    sim_cost(&cost);
    for (int i = 0; i < n; i++)
        jobs[i] = (struct offline_job){requests[i].at_ns, requests[i].at_ns + requests[i].patience_ns,
                                       (int64_t)((double)sim_least_work_ns(&cost, requests[i].n_prompt) / capacity)};
    assert_int_equal(offline_bound_max_jobs(jobs, n, &bound), STATUS_OK);
    return bound;
}

static void overload_goodput(void **state) {
    (void)state;
    double sum = 0, sum_fcfs = 0, sum_bound = 0, capacity = measure_capacity();
    print_message("capacity %.3f\n", capacity);
    for (uint64_t seed = 1; seed <= (test_is_slow_build() ? 1 : 5); seed++) {
        struct sim_world world;
        struct sim_options options = ordinary();
        options.admission.max_waiting[TERMS_INTERACTIVE] = 32;
        int n = make_overload(seed, capacity);
        play(&options, n, &world);
        int n_in_time = count_in_time(n), n_admitted = 0;
        for (int i = 0; i < n; i++) n_admitted += requests[i].answer.reason == ADMISSION_ADMITTED;
        options.policy = POLICY_FCFS;
        n = make_overload(seed, capacity);
        play(&options, n, &world);
        int n_fcfs = count_in_time(n);
        double bound = bound_of(n, capacity);
        print_message("seed %d: %d of %d in time (%d admitted), fcfs %d, bound %.1f\n", (int)seed, n_in_time, n,
                      n_admitted, n_fcfs, bound);
        sum += n_in_time;
        sum_fcfs += n_fcfs;
        sum_bound += bound;
    }
    print_message("%.3f of the bound, %.2f x fcfs\n", sum / sum_bound, sum / sum_fcfs);
    assert_true(sum >= 1.5 * sum_fcfs);
    assert_true(sum >= 0.85 * sum_bound);
}

static int count_late(int n) {
    int n_late = 0;
    for (int i = 0; i < n; i++) {
        const struct terms *terms = &requests[i].terms;
        n_late += terms->promise_ns && requests[i].first_token_ns > policy_due_ns(terms);
    }
    return n_late;
}

/* Every third (in a sanitizer's build every 24th) that was refused because of its deadline is taken all the same, in a
 * run of its own: it is late, or others are. */
static void refused_ones_could_not_have_made_it(void **state) {
    (void)state;
    static bool is_refused[MAX_REQUESTS];
    struct sim_options options = ordinary();
    struct sim_world world;
    double capacity = measure_capacity();
    int stride = test_is_slow_build() ? 24 : 3;
    int n = make_overload(1, capacity), n_refused = 0, n_checked = 0, n_wrong = 0;
    play(&options, n, &world);
    int n_late_before = count_late(n), n_in_time_before = count_in_time(n);
    for (int i = 0; i < n; i++) is_refused[i] = requests[i].answer.reason == ADMISSION_DEADLINE;
    for (int i = 0; i < n; i++) {
        if (!is_refused[i] || n_refused++ % stride) continue;
        make_overload(1, capacity);
        requests[i].is_forced = true;
        play(&options, n, &world);
        bool is_in_time = requests[i].first_token_ns <= requests[i].at_ns + requests[i].patience_ns;
        n_checked++;
        n_wrong += is_in_time && count_late(n) <= n_late_before && count_in_time(n) > n_in_time_before;
    }
    print_message("of %d refused %d could have been taken\n", n_checked, n_wrong);
    assert_true(n_checked * stride > 60);
    assert_true(n_wrong * 3 <= n_checked);
}

static void add_batch(int from, int n) {
    for (int i = from; i < from + n; i++)
        requests[i] = (struct sim_request){.n_prompt = 700, .max_new = 8, .service_class = TERMS_BATCH, .tenant = 9};
}

static void batch_alone_is_fast(void **state) {
    (void)state;
    double tokens_per_s[2];
    for (int is_best = 0; is_best <= 1; is_best++) {
        struct sim_world world;
        struct sim_options options = ordinary();
        if (is_best) options.limits.step.is_unbounded = true, options.policy = POLICY_FCFS;
        add_batch(0, 40);
        play(&options, 40, &world);
        tokens_per_s[is_best] = (double)world.n_prompt_tokens / ((double)world.busy_ns / 1e9);
    }
    print_message("batch %.0f tokens/s, without any bound %.0f\n", tokens_per_s[0], tokens_per_s[1]);
    assert_true(tokens_per_s[0] >= 0.95 * tokens_per_s[1]);
}

static void batch_gives_way(void **state) {
    (void)state;
    int64_t p95_ns[2];
    for (int has_batch = 0; has_batch <= 1; has_batch++) {
        struct sim_world world;
        struct sim_options options = ordinary();
        int n_refused, n = add_poisson(0, 3, 0.4, 120, 64, 400, 16, (struct sim_request){0});
        if (has_batch) add_batch(n, 30), n += 30;
        play(&options, n, &world);
        p95_ns[has_batch] = p95_of(n, is_interactive, &n_refused);
        print_message("p95 %.0f ms, %d refused\n", (double)p95_ns[has_batch] / 1e6, n_refused);
        assert_true(n_refused * 50 <= n);
    }
    assert_true(p95_ns[1] <= p95_ns[0] * 6 / 5);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_stream_goes_on_beside_a_whale),
        cmocka_unit_test(short_ones_hardly_notice_whales),
        cmocka_unit_test(a_storm_hits_its_own_tenant),
        cmocka_unit_test(overload_goodput),
        cmocka_unit_test(refused_ones_could_not_have_made_it),
        cmocka_unit_test(batch_alone_is_fast),
        cmocka_unit_test(batch_gives_way),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
