#include "engine/pacing.h"

#include "base/clock.h"
#include "base/log.h"
#include "engine/cost_setup.h"
#include "planner/cost_file.h"
#include "planner/hw_profile.h"

#define MAX_PROBE_SEQUENCES 16
#define PEAK_NS 5000000
#define MAX_PEAKS 3

/* Steps without a bound in time need a cost only to compare prompts by. */
static void use_unit_cost(struct step_cost *cost) {
    const int rows = 1;
    const double rows_ns = 1e6;
    if (step_cost_init(cost, 1, &rows, &rows_ns, NULL)) BUG("the unit cost is refused");
}

/* ---- measuring ---- */

static struct cost_model_limits probe_limits(const struct engine *engine) {
    const struct engine_options *options = &engine->options;
    int n_sequences = options->max_sequences < MAX_PROBE_SEQUENCES ? options->max_sequences : MAX_PROBE_SEQUENCES;
    int max_tokens = engine->groups.groups[0].pool.n_blocks / n_sequences * options->block_tokens;
    if (max_tokens > options->max_context) max_tokens = options->max_context;
    return (struct cost_model_limits){.max_rows = engine_usual_chunk(options),
                                      .max_pos = max_tokens - 1,
                                      .max_sequences = n_sequences,
                                      .max_logit_rows = options->max_logit_rows,
                                      .budget_ns = options->calibrate_ns};
}

/* Rows of one sequence, from row_begin on; its blocks are its share of every pool, which nobody uses yet. */
static void lay_out_probe(struct engine *engine, const struct cost_model_probe *probe, int number, int row_begin) {
    struct step_batch *step = &engine->batch;
    int block_tokens = engine->options.block_tokens, max_pos = probe_limits(engine).max_pos;
    struct batch_sequence *sequence = &step->sequences[number];
    *sequence = (struct batch_sequence){.row_begin = row_begin, .n_rows = probe->n_rows, .first_pos = probe->pos};
    for (int g = 0; g < engine->groups.n_groups; g++) {
        block_id *blocks = engine->sequences[number].kv.blocks[g];
        int n_blocks = engine->groups.groups[g].pool.n_blocks;
        for (int b = 0; b <= (probe->pos + probe->n_rows - 1) / block_tokens; b++)
            blocks[b] = (block_id)((number * (max_pos / block_tokens + 1) + b) % n_blocks);
        sequence->blocks[g] = blocks;
        for (int i = 0; i < probe->n_rows; i++) {
            int pos = probe->pos + i;
            step->slots[g][row_begin + i] =
                blocks[pos / block_tokens] * (uint32_t)block_tokens + (uint32_t)(pos % block_tokens);
        }
    }
    for (int i = 0; i < probe->n_rows; i++) {
        step->tokens[row_begin + i] = (uint32_t)(row_begin + i) % (uint32_t)engine->model.n_vocab;
        step->positions[row_begin + i] = probe->pos + i;
    }
}

static int64_t run_probe(void *arg, const struct cost_model_probe *probe) {
    struct engine *engine = arg;
    struct step_batch *step = &engine->batch;
    int n_rows = probe->n_sequences * probe->n_rows;
    for (int i = 0; i < probe->n_sequences; i++) lay_out_probe(engine, probe, i, i * probe->n_rows);
    for (int i = 0; i < probe->n_logit_rows; i++) step->logit_rows[i] = n_rows - probe->n_logit_rows + i;
    struct model_batch batch = {.n_rows = n_rows,
                                .tokens = step->tokens,
                                .positions = step->positions,
                                .n_sequences = probe->n_sequences,
                                .sequences = step->sequences,
                                .n_logit_rows = probe->n_logit_rows,
                                .logit_rows = step->logit_rows};
    for (int g = 0; g < engine->groups.n_groups; g++) batch.slots[g] = step->slots[g];
    int64_t start_ns = clock_now_ns();
    if (engine->is_probing) engine->is_probing = forward_run(engine->forward, &batch, &engine->logits);
    return clock_now_ns() - start_ns;
}

/* False if somebody came: nothing has changed then. */
static bool measure(struct engine *engine) {
    const struct cost_model_limits limits = probe_limits(engine);
    struct cost_model measured = engine->costs;
    struct status_note note = {0};
    engine->is_probing = true;
    cost_model_measure(&measured, &limits, run_probe, engine);
    if (!engine->is_probing) return false;
    engine->is_probing = false;
    engine->costs = measured;
    const char *dir = engine->options.cost_dir;
    if (dir && cost_file_save(&engine->costs, dir, &note))
        log_line(LOG_WARN, "measured costs are not kept: %s", note.text);
    return true;
}

/* One step of each regime tells how far the guess is off; a regime whose step would take too long follows the one
 * before. */
static void correct_guess(struct engine *engine) {
    static const int rows[COST_MODEL_N_REGIMES] = {1, 64, 256};
    const struct cost_model_limits limits = probe_limits(engine);
    double ratio = 1;
    int64_t left_ns = engine->options.hasty_ns;
    engine->is_probing = true;
    for (int i = 0; i < COST_MODEL_N_REGIMES; i++) {
        struct cost_model_probe probe = {1, rows[i] < limits.max_rows ? rows[i] : limits.max_rows, 0, 1};
        struct step_shape shape = {0};
        step_cost_add_prefill(&engine->costs.base, &shape, 0, probe.n_rows, 1);
        double guess_ns = (double)step_cost_ns(&engine->costs.base, &shape);
        /* The first touch of everything is no step's usual time. */
        if (i == 0) left_ns -= run_probe(engine, &probe);
        if (guess_ns * ratio < (double)left_ns && probe.n_rows == rows[i]) {
            int64_t took_ns = run_probe(engine, &probe);
            ratio = (double)took_ns / guess_ns;
            left_ns -= took_ns;
        }
        engine->costs.parts[i].correction = engine->costs.slowness = ratio;
    }
    engine->is_probing = false;
}

/* ---- start and steps ---- */

static void use_costs(struct engine *engine) {
    cost_model_fill(&engine->costs, &engine->state.cost);
}

void pacing_init(struct engine *engine) {
    const struct engine_options *options = &engine->options;
    bool is_unbounded = engine->state.limits.step.is_unbounded;
    engine->has_costs = !is_unbounded || options->cost_dir;
    if (!engine->has_costs) {
        use_unit_cost(&engine->state.cost);
        return;
    }
    cost_setup_init(&engine->costs, options, &engine->model, &engine->kernels, engine->weight_bytes);
    bool is_sound = engine->costs.source != COST_MODEL_GUESSED && !engine->costs.is_disturbed;
    if (!is_sound && options->calibrate_ns > 0) {
        engine->must_probe = options->hasty_ns > 0;
        if (!engine->must_probe)
            measure(engine);
        else if (engine->costs.source == COST_MODEL_GUESSED)
            correct_guess(engine);
    }
    engine->start_costs = engine->costs;
    use_costs(engine);
}

void pacing_measure_idle(struct engine *engine) {
    for (int g = 0; g < engine->groups.n_groups; g++)
        if (engine->groups.groups[g].pool.n_free < engine->groups.groups[g].pool.n_blocks) return;
    engine->must_probe = !measure(engine);
    use_costs(engine);
}

void pacing_measure_peak(struct engine *engine) {
    struct hw_peak peak;
    if (!engine->has_costs || engine->n_peaks == MAX_PEAKS) return;
    engine->n_peaks++;
    thread_pool_limit(engine->pool, engine->options.n_threads);
    if (hw_profile_int8_peak(engine->pool, &engine->kernels, PEAK_NS, &peak)) return;
    double ops = 1e9 * (peak.undisturbed_gops > peak.gops ? peak.undisturbed_gops : peak.gops);
    if (engine->stats.int8_peak_ops < ops) engine->stats.int8_peak_ops = ops;
    engine_stats_publish(engine);
}

void pacing_observe(struct engine *engine, int64_t measured_ns) {
    if (!engine->has_costs) return;
    cost_model_observe(&engine->costs, &engine->plan.shape, engine->plan.predicted_ns, measured_ns);
    use_costs(engine);
}

void pacing_set_chunked(struct engine *engine, bool is_chunked) {
    struct plan_limits *limits = &engine->state.limits;
    engine->stats.is_unchunked = !is_chunked;
    limits->max_prefill_rows = is_chunked ? engine_usual_chunk(&engine->options) : engine->options.max_chunk;
    limits->step.is_unbounded = !is_chunked || engine->start_limits.is_unbounded;
}
