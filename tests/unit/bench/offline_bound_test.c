#include "bench/offline_bound.h"

#include "base/rng.h"
#include "support/test.h"

static double bound_of(const struct offline_job *jobs, int n) {
    double out;
    assert_int_equal(offline_bound_max_jobs(jobs, n, &out), STATUS_OK);
    return out;
}

static void small_cases(void **state) {
    (void)state;
    const struct offline_job one[] = {{0, 10, 10}}, late[] = {{0, 10, 20}}, both[] = {{0, 10, 5}, {0, 10, 5}};
    const struct offline_job three[] = {{0, 10, 5}, {0, 10, 5}, {0, 10, 5}};
    const struct offline_job inner[] = {{0, 100, 90}, {40, 50, 10}}, tight[] = {{0, 100, 95}, {40, 50, 10}};
    assert_true(bound_of(NULL, 0) == 0);
    assert_true(bound_of(one, 1) == 1);
    assert_true(bound_of(late, 1) == 0.5);
    assert_true(bound_of(both, 2) == 2);
    assert_true(bound_of(three, 3) == 2);
    assert_true(bound_of(inner, 2) == 2); /* the long one is interrupted */
    double part = bound_of(tight, 2);
    assert_true(part > 1.94 && part < 1.95); /* the short one whole, 90 of 95 of the other */
}

/* Jobs of a set are all done in time if and only if the earliest deadline first does it, ns by ns. */
static bool is_feasible(const struct offline_job *jobs, int n, unsigned set) {
    int64_t left[8];
    for (int i = 0; i < n; i++) left[i] = set >> i & 1 ? jobs[i].work_ns : 0;
    for (int64_t now = 0; now < 64; now++) {
        int best = -1;
        for (int i = 0; i < n; i++)
            if (left[i] && jobs[i].arrival_ns <= now && (best < 0 || jobs[i].deadline_ns < jobs[best].deadline_ns))
                best = i;
        if (best < 0) continue;
        if (now >= jobs[best].deadline_ns) return false;
        left[best]--;
    }
    return true;
}

static void never_below_the_best_set_and_near_it(void **state) {
    (void)state;
    double sum_bound = 0, sum_best = 0;
    for (uint32_t round = 0; round < 300; round++) {
        struct offline_job jobs[8];
        int n = 8, best = 0;
        for (uint32_t i = 0; i < 8; i++) {
            int64_t arrival = (int64_t)(rng_uniform(round, 0, i) * 20),
                    work = 1 + (int64_t)(rng_uniform(round, 1, i) * 8);
            jobs[i] = (struct offline_job){arrival, arrival + work + (int64_t)(rng_uniform(round, 2, i) * 12), work};
        }
        for (unsigned set = 0; set < 256; set++) {
            int size = __builtin_popcount(set);
            if (size > best && is_feasible(jobs, n, set)) best = size;
        }
        double bound = bound_of(jobs, n);
        assert_true(bound >= best - 1e-9);
        sum_bound += bound;
        sum_best += best;
    }
    assert_true(sum_bound <= 1.15 * sum_best);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(small_cases),
        cmocka_unit_test(never_below_the_best_set_and_near_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
