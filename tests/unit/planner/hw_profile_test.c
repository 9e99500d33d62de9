#include "planner/hw_profile.h"

#include <stdio.h>

#include "base/clock.h"
#include "base/cpu.h"
#include "base/mem.h"
#include "kernels/pack.h"
#include "planner/cycle_counter.h"
#include "support/test.h"

#define SHORT_NS 30000000
#define K 256
#define N_COLS 64
#define N_ROWS 32
#define N_TIMES 200
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define IS_INSTRUMENTED true
#else
#define IS_INSTRUMENTED false
#endif

static struct thread_pool *pool_of(int n_threads) {
    struct thread_pool *pool;
    assert_int_equal(thread_pool_create(&pool, n_threads), STATUS_OK);
    return pool;
}

static struct hw_peak peak_of(struct thread_pool *pool, unsigned tiers) {
    struct kernel_table kernels;
    struct hw_peak peak;
    kernel_table_choose(&kernels, tiers);
    assert_int_equal(hw_profile_int8_peak(pool, &kernels, SHORT_NS, &peak), STATUS_OK);
    return peak;
}

/* Best of many calls of a product whose weights and activations stay in the first cache, in operations per ns. */
static double best_gemm_gops(unsigned tiers, enum dtype dtype) {
    struct kernel_table kernels;
    kernel_table_choose(&kernels, tiers);
    size_t tile_bytes = pack_tile_bytes(dtype, K);
    void *packed = mem_alloc(tile_bytes * N_COLS / GEMM_TILE_COLS);
    void *act_bytes = mem_alloc(act_q8_bytes(ACT_INT8, N_ROWS, K));
    float *out = mem_alloc_array(N_ROWS * N_COLS, sizeof *out);
    assert_true(packed && act_bytes && out);
    struct act_q8 act = act_q8_at(act_bytes, ACT_INT8, N_ROWS, K);
    double best = 0;
    for (int i = 0; i < N_TIMES; i++) {
        int64_t start_ns = clock_now_ns();
        kernel_table_gemm_q8(&kernels, dtype)(packed, &act, out, N_COLS, N_ROWS, N_COLS, K);
        double gops = 2.0 * N_ROWS * N_COLS * K / (double)(clock_now_ns() - start_ns + 1);
        if (gops > best) best = gops;
    }
    mem_free(packed);
    mem_free(act_bytes);
    mem_free(out);
    return best;
}

static void no_product_is_faster_than_the_peak(void **state) {
    static const enum dtype dtypes[] = {DTYPE_Q4_0, DTYPE_Q8_0, DTYPE_Q6_K};
    struct thread_pool *pool = pool_of(1);
    unsigned detected = cpu_detect();
    (void)state;
    for (int bit = 0; bit < cpu_n_tiers(); bit++) {
        if (!(detected >> bit & 1)) continue;
        unsigned tiers = detected & ((2u << bit) - 1);
        /* The best millisecond: what this thread does while nobody else has its core. */
        double peak_gops = peak_of(pool, tiers).undisturbed_gops;
        for (size_t i = 0; i < sizeof dtypes / sizeof dtypes[0]; i++) {
            double gops = best_gemm_gops(tiers, dtypes[i]);
            printf("%s %s: %.1f of %.1f GOPS\n", cpu_tier_name(bit), dtype_name(dtypes[i]), gops, peak_gops);
            assert_true(gops > 0);
            /* Sanitizers slow C down, but not the instructions of the compiler's own vectors. */
            if (!IS_INSTRUMENTED) assert_true(gops <= peak_gops);
        }
    }
    thread_pool_destroy(&pool);
}

static void more_threads_have_a_higher_undisturbed_peak(void **state) {
    (void)state;
    if (cpu_n_usable() < 2) {
        puts("this CPU has one core for us");
        skip();
    }
    struct thread_pool *one = pool_of(1), *two = pool_of(2);
    double of_one = peak_of(one, cpu_detect()).undisturbed_gops, of_two = peak_of(two, cpu_detect()).undisturbed_gops;
    printf("%.1f and %.1f GOPS\n", of_one, of_two);
    assert_true(of_two > 1.2 * of_one);
    assert_true(of_two < 2.5 * of_one);
    thread_pool_destroy(&one);
    thread_pool_destroy(&two);
}

static void a_peak_is_never_above_what_it_could_be(void **state) {
    (void)state;
    struct thread_pool *pool = pool_of(2);
    struct hw_peak peak = peak_of(pool, cpu_detect());
    assert_true(peak.gops <= peak.undisturbed_gops);
    if (!peak.has_cycles) assert_true(peak.macs_per_cycle == 0);
    thread_pool_destroy(&pool);
}

static void five_percent_are_a_disturbance(void **state) {
    (void)state;
    assert_false(hw_profile_is_disturbed(&(struct hw_peak){.gops = 96, .undisturbed_gops = 100}));
    assert_true(hw_profile_is_disturbed(&(struct hw_peak){.gops = 94, .undisturbed_gops = 100}));
    assert_true(hw_profile_is_disturbed(&(struct hw_peak){0}));
}

static void the_better_peak_keeps_the_larger_claim(void **state) {
    (void)state;
    struct hw_peak a = {.gops = 90, .undisturbed_gops = 91}, b = {.gops = 80, .undisturbed_gops = 100};
    struct hw_peak ab = hw_profile_better_peak(a, b), ba = hw_profile_better_peak(b, a);
    assert_true(ab.gops == 90 && ab.undisturbed_gops == 100);
    assert_true(ba.gops == 90 && ba.undisturbed_gops == 100);
    assert_true(hw_profile_is_disturbed(&ab));
}

static void reading_has_a_rate(void **state) {
    (void)state;
    struct thread_pool *pool = pool_of(2);
    double gb_s;
    assert_int_equal(hw_profile_read_gb_s(pool, (size_t)128 << 20, &gb_s), STATUS_OK);
    printf("%.1f GB/s\n", gb_s);
    assert_true(gb_s > 0.1 && gb_s < 10000);
    thread_pool_destroy(&pool);
}

static void no_memory_is_an_error(void **state) {
    (void)state;
    struct thread_pool *pool = pool_of(1);
    struct kernel_table kernels;
    struct hw_peak peak;
    double gb_s;
    long n_live = mem_n_live();
    kernel_table_choose(&kernels, CPU_TIER_scalar);
    mem_fail_from(1);
    enum status of_peak = hw_profile_int8_peak(pool, &kernels, SHORT_NS, &peak);
    enum status of_read = hw_profile_read_gb_s(pool, (size_t)32 << 20, &gb_s);
    mem_fail_from(2);
    enum status of_second = hw_profile_read_gb_s(pool, (size_t)32 << 20, &gb_s);
    mem_fail_from(0);
    assert_int_equal(of_peak, STATUS_NOMEM);
    assert_int_equal(of_read, STATUS_NOMEM);
    assert_int_equal(of_second, STATUS_NOMEM);
    assert_int_equal(mem_n_live(), n_live);
    thread_pool_destroy(&pool);
}

static void cycles_go_on_while_a_thread_runs(void **state) {
    (void)state;
    struct cycle_counter counter;
    if (!cycle_counter_open(&counter)) {
        assert_true(cycle_counter_read(&counter) == 0);
        cycle_counter_close(&counter);
        return;
    }
    uint64_t before = cycle_counter_read(&counter);
    for (int64_t start_ns = clock_now_ns(); clock_now_ns() - start_ns < SHORT_NS;) continue;
    assert_true(cycle_counter_read(&counter) > before);
    cycle_counter_close(&counter);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_product_is_faster_than_the_peak),
        cmocka_unit_test(more_threads_have_a_higher_undisturbed_peak),
        cmocka_unit_test(a_peak_is_never_above_what_it_could_be),
        cmocka_unit_test(five_percent_are_a_disturbance),
        cmocka_unit_test(the_better_peak_keeps_the_larger_claim),
        cmocka_unit_test(reading_has_a_rate),
        cmocka_unit_test(no_memory_is_an_error),
        cmocka_unit_test(cycles_go_on_while_a_thread_runs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
