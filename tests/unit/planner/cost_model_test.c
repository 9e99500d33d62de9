#include "planner/cost_model.h"

#include <math.h>
#include <string.h>

#include "base/cpu.h"
#include "base/rng.h"
#include "support/test.h"

#define STAIR_ROWS 16
#define STAIR_NS 400000.0
#define KEY_NS 30.0
#define DECODE_KEY_NS 90.0
#define DECODE_ROW_NS 20000.0
#define LOGIT_NS 50000.0
#define FIXED_NS 2000000.0

static struct model_config config = {.arch = "llama",
                                     .n_layers = 4,
                                     .d_model = 256,
                                     .n_heads = 4,
                                     .n_kv_heads = 2,
                                     .head_dim = 64,
                                     .d_ff = 512,
                                     .n_vocab = 1000};
static struct cost_model model;

/* A machine with stairs of 16 rows, and what disturbs it. */
struct machine {
    double noise; /* share of a step that may be added */
    int n_runs, stolen_every;
    bool has_free_keys;
    int n_written; /* positions of the first sequence, from 0 on */
};

static double true_ns(int n_rows, double prefill_keys, double decode_keys, int n_decode, int n_logits) {
    int n_stairs = (n_rows + STAIR_ROWS - 1) / STAIR_ROWS;
    return FIXED_NS + n_stairs * STAIR_NS + prefill_keys * KEY_NS + decode_keys * DECODE_KEY_NS +
           n_decode * DECODE_ROW_NS + n_logits * LOGIT_NS;
}

static int64_t run(void *arg, const struct cost_model_probe *probe) {
    struct machine *machine = arg;
    int n_rows = probe->n_rows * probe->n_sequences, end = probe->pos + probe->n_rows;
    assert_true(probe->pos <= (probe->n_sequences == 1 ? machine->n_written : 0)); /* it reads what was written */
    if (end > machine->n_written) machine->n_written = end;
    bool is_decode = probe->n_rows == 1;
    double keys = machine->has_free_keys
                      ? 0
                      : step_cost_keys(&model.base, probe->pos, probe->pos + probe->n_rows) * probe->n_sequences;
    double ns = true_ns(n_rows, is_decode ? 0 : keys, is_decode ? keys : 0,
                        probe->n_sequences > 1 ? probe->n_sequences : 0, probe->n_logit_rows);
    ns *= 1 + machine->noise * rng_uniform(3, 0, (uint32_t)machine->n_runs);
    if (machine->stolen_every && machine->n_runs % machine->stolen_every == 0) ns *= 5;
    machine->n_runs++;
    return (int64_t)ns;
}

static void init_model(int n_threads) {
    struct kernel_table kernels;
    struct cost_model_setup setup = {.tier = "scalar",
                                     .n_threads = n_threads,
                                     .kv_type = "F16",
                                     .activations = "auto",
                                     .peak_macs_per_ns = 20,
                                     .weights = {1}};
    kernel_table_choose(&kernels, CPU_TIER_scalar);
    cost_model_init(&model, &setup, &config, &kernels, 1000000);
}

static const struct cost_model_limits limits = {512, 4095, 64, 64, INT64_C(60000000000)};

static struct step_cost measured_cost(struct machine machine) {
    struct step_cost cost;
    init_model(1);
    cost_model_measure(&model, &limits, run, &machine);
    cost_model_fill(&model, &cost);
    return cost;
}

static double predicted_prefill(int from, int to) {
    struct step_cost cost;
    struct step_shape shape = {0};
    cost_model_fill(&model, &cost);
    step_cost_add_prefill(&cost, &shape, from, to, 1);
    return (double)step_cost_ns(&cost, &shape);
}

static void check_close(double value, double expected, double share) {
    if (fabs(value - expected) > share * expected) fail_msg("%g is not near %g", value, expected);
}

static void a_guess_is_usable(void **state) {
    (void)state;
    init_model(1);
    assert_int_equal(model.source, COST_MODEL_GUESSED);
    double few = predicted_prefill(0, 8), many = predicted_prefill(0, 512), later = predicted_prefill(2048, 2560);
    assert_true(few > 0 && many > few && later > many && isfinite(later));
    init_model(4);
    assert_true(predicted_prefill(0, 512) < many);
}

static void without_a_peak_one_is_measured(void **state) {
    (void)state;
    struct kernel_table kernels;
    struct cost_model_setup setup = {.tier = "scalar", .n_threads = 1, .kv_type = "F16", .activations = "auto"};
    kernel_table_choose(&kernels, CPU_TIER_scalar);
    cost_model_init(&model, &setup, &config, &kernels, 1000000);
    double many = predicted_prefill(0, 512);
    assert_true(many > predicted_prefill(0, 8) && isfinite(many));
}

static void measuring_finds_the_coefficients(void **state) {
    (void)state;
    struct machine machine = {0};
    init_model(1);
    cost_model_measure(&model, &limits, run, &machine);
    assert_int_equal(model.source, COST_MODEL_MEASURED);
    check_close(model.base.prefill_key_ns, KEY_NS, 0.02);
    check_close(model.base.decode_key_ns, DECODE_KEY_NS, 0.02);
    check_close(model.base.logit_row_ns, LOGIT_NS, 0.02);
    check_close(model.base.decode_row_ns, DECODE_ROW_NS, 0.05);
    for (int rows = 16; rows <= 512; rows *= 2)
        check_close(predicted_prefill(1000, 1000 + rows),
                    true_ns(rows, step_cost_keys(&model.base, 1000, 1000 + rows), 0, 0, 1), 0.02);
}

static void the_table_keeps_its_stairs(void **state) {
    (void)state;
    struct machine machine = {0};
    init_model(1);
    cost_model_measure(&model, &limits, run, &machine);
    /* 1 to 16 rows cost the same beside their keys; a line would not. */
    assert_true(predicted_prefill(0, 16) - predicted_prefill(0, 1) < 0.05 * STAIR_NS);
    assert_true(predicted_prefill(0, 32) - predicted_prefill(0, 16) > 0.9 * STAIR_NS);
}

static void noise_leaves_it_monotone_and_near(void **state) {
    (void)state;
    struct step_cost cost = measured_cost((struct machine){.noise = 0.1, .stolen_every = 7});
    for (int i = 1; i < cost.n_points; i++) assert_true(cost.rows_ns[i] >= cost.rows_ns[i - 1]);
    for (int rows = 16; rows <= 512; rows *= 2)
        check_close(predicted_prefill(0, rows), true_ns(rows, rows * (rows + 1) / 2.0, 0, 0, 1), 0.2);
}

static void a_disturbance_is_noticed(void **state) {
    (void)state;
    struct machine quiet = {.noise = 0.1}, shaken = {.stolen_every = 3};
    init_model(1);
    cost_model_measure(&model, &limits, run, &quiet);
    assert_false(model.is_disturbed);
    cost_model_measure(&model, &limits, run, &shaken);
    assert_true(model.is_disturbed);
}

static void ttft_follows_the_machine(void **state) {
    (void)state;
    struct step_cost cost = measured_cost((struct machine){0});
    for (int n = 128; n <= 8192; n *= 2) {
        double ns = 0;
        for (int from = 0; from < n; from += 512) {
            int to = from + 512 < n ? from + 512 : n;
            ns += true_ns(to - from, step_cost_keys(&cost, from, to), 0, 0, to == n);
        }
        check_close((double)cost_model_ttft_ns(&cost, n, 0, 512, NULL), ns, 0.02);
    }
    assert_true(cost_model_ttft_ns(&cost, 4096, 4095, 512, NULL) < cost_model_ttft_ns(&cost, 4096, 0, 512, NULL) / 10);
    assert_true(cost_model_ttft_ns(&cost, 1 << 30, 0, 1 << 29, NULL) <= STEP_COST_MAX_NS);
}

/* Steps that may not be long are more of them, each with its fixed part. */
static void ttft_follows_the_bound_of_steps(void **state) {
    (void)state;
    struct step_cost cost = measured_cost((struct machine){0});
    struct step_shape one = {.n_rows = 1}, chunk = {0};
    step_cost_add_prefill(&cost, &chunk, 0, 150, 0);
    struct step_limits bound = {.max_step_ns = step_cost_ns(&cost, &chunk)};
    assert_true(bound.max_step_ns > 2 * step_cost_ns(&cost, &one));
    double ns = 0;
    for (int from = 0, to; from < 1000; from = to) {
        to = 1000;
        while (to - from > 1 &&
               true_ns(to - from, step_cost_keys(&cost, from, to), 0, 0, to == 1000) > (double)bound.max_step_ns)
            to--;
        ns += true_ns(to - from, step_cost_keys(&cost, from, to), 0, 0, to == 1000);
    }
    check_close((double)cost_model_ttft_ns(&cost, 1000, 0, 512, &bound), ns, 0.05);
    assert_true(cost_model_ttft_ns(&cost, 1000, 0, 512, &bound) > cost_model_ttft_ns(&cost, 1000, 0, 512, NULL));
}

static void windows_bound_the_keys(void **state) {
    (void)state;
    init_model(1);
    double all = predicted_prefill(4000, 4512);
    config.layers[0].window = config.layers[1].window = 100;
    init_model(1);
    assert_true(model.base.window_share == 0.5 && model.base.window_tokens == 100);
    assert_true(predicted_prefill(4000, 4512) != all);
    config.layers[0].window = config.layers[1].window = 0;
}

static void the_budget_bounds_repeats_not_points(void **state) {
    (void)state;
    struct machine machine = {0};
    struct cost_model_limits poor = limits;
    poor.budget_ns = 0;
    init_model(1);
    cost_model_measure(&model, &poor, run, &machine);
    int n_once = machine.n_runs;
    machine.n_runs = 0;
    cost_model_measure(&model, &limits, run, &machine);
    assert_true(machine.n_runs > 4 * (n_once - 2)); /* the first touch and what is written are not repeated */
    assert_int_equal(model.base.rows[model.base.n_points - 1], 512);
}

static void small_limits_are_kept(void **state) {
    (void)state;
    struct machine machine = {0};
    init_model(1);
    cost_model_measure(&model, &(struct cost_model_limits){1, 0, 1, 1, 0}, run, &machine);
    assert_int_equal(model.base.n_points, 1);
    assert_true(predicted_prefill(0, 1) > 0);
}

static void observe_rows(int n_rows, int64_t predicted_ns, int64_t measured_ns) {
    struct step_shape shape = {.n_rows = n_rows};
    cost_model_observe(&model, &shape, predicted_ns, measured_ns);
}

static double slowness(void) {
    struct step_cost cost;
    cost_model_fill(&model, &cost);
    return cost.slowness;
}

static void one_odd_step_changes_nothing(void **state) {
    (void)state;
    struct machine machine = {0};
    init_model(1);
    cost_model_measure(&model, &limits, run, &machine);
    double before = predicted_prefill(0, 256);
    for (int i = 0; i < 50; i++) observe_rows(256, 1000000, i % 5 ? 1000000 : 50000000);
    assert_true(predicted_prefill(0, 256) == before);
}

/* Whichever regime the steps are in, and as fast as they change. */
static void how_slow_steps_are_is_told(void **state) {
    (void)state;
    struct machine machine = {0};
    init_model(1);
    cost_model_measure(&model, &limits, run, &machine);
    assert_true(slowness() == 1);
    for (int round = 0; round < 4; round++) {
        int n_rows = round % 2 ? 64 : 512;
        double factor = round < 2 ? 1.5 : 1, base_ns = (double)true_ns(n_rows, 0, 0, 0, 0);
        for (int i = 0; i < 400; i++) {
            int64_t predicted_ns = (int64_t)predicted_prefill(0, n_rows);
            observe_rows(n_rows, predicted_ns, (int64_t)(factor * base_ns));
        }
        check_close(slowness(), factor, 0.1);
    }
    cost_model_measure(&model, &limits, run, &machine);
    assert_true(slowness() == 1);
}

static void a_slower_machine_is_learned_in_its_regime(void **state) {
    (void)state;
    struct machine machine = {0};
    init_model(1);
    cost_model_measure(&model, &limits, run, &machine);
    double large = predicted_prefill(0, 512), small = predicted_prefill(0, 4);
    for (int i = 0; i < 200; i++) {
        int64_t predicted = (int64_t)predicted_prefill(0, 512);
        observe_rows(512, predicted, (int64_t)(1.5 * large));
    }
    check_close(predicted_prefill(0, 512), 1.5 * large, 0.03);
    assert_true(predicted_prefill(0, 4) == small);
    for (int i = 0; i < 100000; i++) observe_rows(512, 1, INT64_MAX / 2);
    assert_true(predicted_prefill(0, 512) < 17 * large);
}

/* Keys that cost eight times what was measured, or an eighth: learned where they are most of a step, and there alone.
 */
static void the_cost_of_keys_is_learned(void **state) {
    (void)state;
    for (int is_decode = 0; is_decode < 2; is_decode++)
        for (int round = 0; round < 2; round++) {
            struct machine machine = {0};
            struct step_cost cost;
            init_model(1);
            cost_model_measure(&model, &limits, run, &machine);
            double near = predicted_prefill(0, 32), factor = round ? 8 : 1.0 / 8;
            for (int i = 0; i < 300; i++) {
                struct step_shape shape = {0};
                cost_model_fill(&model, &cost);
                if (is_decode)
                    step_cost_add_decode(&cost, &shape, 1000000);
                else
                    step_cost_add_prefill(&cost, &shape, 100000, 100032, 0);
                double measured = true_ns(shape.n_rows, factor * shape.n_prefill_keys, factor * shape.n_decode_keys,
                                          shape.n_decode_rows, shape.n_logit_rows);
                cost_model_observe(&model, &shape, step_cost_ns(&cost, &shape), (int64_t)measured);
            }
            check_close(is_decode ? cost.decode_key_ns : cost.prefill_key_ns,
                        factor * (is_decode ? DECODE_KEY_NS : KEY_NS), 0.05);
            check_close(predicted_prefill(0, 32), near, is_decode ? 1e-9 : 0.1);
        }
}

/* A measurement that noise has left without a cost of keys: long prompts teach it all the same. */
static void keys_never_cost_nothing(void **state) {
    (void)state;
    struct machine machine = {.has_free_keys = true};
    init_model(1);
    cost_model_measure(&model, &limits, run, &machine);
    assert_true(model.base.prefill_key_ns > 0 && model.base.decode_key_ns > 0);
}

static void corrections_keep_it_monotone(void **state) {
    (void)state;
    struct machine machine = {0};
    struct step_cost cost;
    init_model(1);
    cost_model_measure(&model, &limits, run, &machine);
    for (int i = 0; i < 300; i++) {
        observe_rows(8, 1000, 3000);
        observe_rows(64, 3000, 1000);
    }
    cost_model_fill(&model, &cost);
    for (int i = 1; i < cost.n_points; i++) assert_true(cost.rows_ns[i] >= cost.rows_ns[i - 1]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_guess_is_usable),
        cmocka_unit_test(without_a_peak_one_is_measured),
        cmocka_unit_test(measuring_finds_the_coefficients),
        cmocka_unit_test(the_table_keeps_its_stairs),
        cmocka_unit_test(noise_leaves_it_monotone_and_near),
        cmocka_unit_test(a_disturbance_is_noticed),
        cmocka_unit_test(ttft_follows_the_machine),
        cmocka_unit_test(ttft_follows_the_bound_of_steps),
        cmocka_unit_test(windows_bound_the_keys),
        cmocka_unit_test(the_budget_bounds_repeats_not_points),
        cmocka_unit_test(small_limits_are_kept),
        cmocka_unit_test(one_odd_step_changes_nothing),
        cmocka_unit_test(how_slow_steps_are_is_told),
        cmocka_unit_test(a_slower_machine_is_learned_in_its_regime),
        cmocka_unit_test(the_cost_of_keys_is_learned),
        cmocka_unit_test(keys_never_cost_nothing),
        cmocka_unit_test(corrections_keep_it_monotone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
