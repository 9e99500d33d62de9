#include "engine/engine_stats.h"

#include <string.h>

#include "engine/engine_state.h"
#include "engine/step_work.h"
#include "sched/room.h"

/* Seconds: a step of a small model is a millisecond, one of batch work may be a few hundred. */
static const double step_bounds[] = {.0005, .001, .0015, .002, .003, .004, .006, .008, .01, .015, .02,
                                     .03,   .04,  .05,   .06,  .08,  .1,   .15,  .2,   .3,  .5,   1};

void engine_stats_init(struct engine_stats *stats) {
    for (int i = 0; i < ENGINE_STEP_N_KINDS; i++)
        histogram_init(&stats->step_seconds[i], step_bounds, (int)(sizeof step_bounds / sizeof step_bounds[0]));
}

/* Whether a step had rows of it: what has lost its blocks was running all the same. */
static bool has_begun(const struct sequence *sequence) {
    return sequence->n_done > sequence->n_cached_tokens || sequence->state == SEQ_RUNNING;
}

/* A choice that has no sequence yet counts with its request's first. */
static void count_classes(struct engine *engine) {
    struct engine_stats *stats = &engine->stats;
    memset(stats->classes, 0, sizeof stats->classes);
    for (int i = 0; i < engine->state.n_sequences; i++) {
        const struct sequence *sequence = engine->state.sequences[i];
        const struct engine_slot *slot = engine_slot_of(engine, sequence);
        struct engine_class_stats *of_class = &stats->classes[slot->request->class_];
        if (slot->choice > 0) continue;
        if (has_begun(sequence))
            of_class->n_running++;
        else
            of_class->n_waiting++;
    }
}

struct engine_class_stats engine_stats_all(const struct engine_stats *stats) {
    struct engine_class_stats all = {0};
    for (int i = 0; i < REQUEST_N_CLASSES; i++) {
        all.n_running += stats->classes[i].n_running;
        all.n_waiting += stats->classes[i].n_waiting;
    }
    return all;
}

static struct engine_group_stats count_group(const struct engine *engine, int group) {
    const struct kv_group *counted = &engine->groups.groups[group];
    const struct kv_layout *layout = &engine->store.stores[group].layout;
    struct room_usage usage = room_usage_of(&engine->state, group);
    return (struct engine_group_stats){.window = counted->window,
                                       .n_blocks = counted->pool.n_blocks,
                                       .n_free = counted->pool.n_free,
                                       .n_reusable = counted->pool.n_reusable,
                                       .n_held = counted->pool.n_held,
                                       .block_bytes = layout->stride_bytes,
                                       .n_pinned = engine->pins.n_pinned[group],
                                       .max_pinned = engine->pins.max_pinned[group],
                                       .n_refs = usage.n_refs,
                                       .n_held_slots = (int64_t)counted->pool.n_held * engine->groups.block_tokens,
                                       .n_unused_slots = usage.n_unused_slots};
}

void engine_stats_publish(struct engine *engine) {
    struct engine_stats *stats = &engine->stats;
    stats->layer_ops = forward_counts(engine->forward);
    stats->n_running = engine->state.n_sequences;
    stats->n_preempted = engine->state.n_preempted;
    count_classes(engine);
    stats->n_groups = engine->groups.n_groups;
    for (int g = 0; g < stats->n_groups; g++) stats->groups[g] = count_group(engine, g);
    stats->n_free_blocks = stats->groups[0].n_free;
    stats->n_reusable_blocks = stats->groups[0].n_reusable;
    stats->n_held_blocks = stats->groups[0].n_held;
    seqlock_write(&engine->stats_lock, engine->shared_stats, stats, sizeof *stats);
}

static void note_promise(struct engine_promise_stats *promises, const struct phase_stats *phases) {
    if (!phases->predicted_ns || !phases->first_token_ns) return;
    int64_t predicted_ns = phases->predicted_ns - phases->admitted_ns;
    int64_t measured_ns = phases->first_token_ns - phases->admitted_ns;
    promises->n++;
    promises->n_late += (double)measured_ns > ADMISSION_LATE_FACTOR * (double)predicted_ns;
    promises->predicted_ns += predicted_ns;
    promises->measured_ns += measured_ns;
    promises->error_ns += measured_ns > predicted_ns ? measured_ns - predicted_ns : predicted_ns - measured_ns;
}

/* A prompt's time on an idle machine, without what was found less with it. */
static int64_t saved_ns(const struct engine *engine, int n_prompt, int n_cached) {
    const struct step_cost *cost = &engine->state.cost;
    int max_chunk = engine->options.max_chunk;
    if (!engine->has_costs || n_cached <= 0) return 0;
    int64_t ns = cost_model_ttft_ns(cost, n_prompt, 0, max_chunk, NULL) -
                 cost_model_ttft_ns(cost, n_prompt, n_cached, max_chunk, NULL);
    return ns > 0 ? ns : 0;
}

void engine_stats_note_prompt(struct engine *engine, const struct request *request, int n_cached) {
    struct engine_stats *stats = &engine->stats;
    stats->n_prompt_tokens += request->n_prompt;
    if (request->has_cache) {
        stats->n_cache_asked += request->n_prompt;
        stats->n_cache_found += n_cached;
        stats->cache_saved_ns += saved_ns(engine, request->n_prompt, n_cached);
    }
    note_promise(&stats->promises[request->class_], &request->stats);
}

void engine_stats_note_work(struct engine *engine, struct request *request, const struct plan_item *item,
                            bool is_prefill) {
    struct phase_work work = {0};
    step_work_add(&work, engine, item);
    phase_stats_add_work(is_prefill ? &request->stats.prefill : &request->stats.decode, &work);
    phase_stats_add_work(is_prefill ? &engine->stats.prefill.work : &engine->stats.decode.work, &work);
    phase_stats_add_work(is_prefill ? &engine->step_prefill : &engine->step_decode, &work);
}

double engine_stats_decode_share(const struct engine *engine) {
    const struct plan *plan = &engine->plan;
    int n_decode = plan->n_decode_rows;
    if (n_decode == 0 || n_decode == plan->n_rows) return n_decode > 0;
    if (!engine->has_costs) return (double)n_decode / plan->n_rows;
    struct step_shape alone = {.n_rows = n_decode,
                               .n_decode_rows = n_decode,
                               .n_logit_rows = n_decode,
                               .n_decode_keys = plan->shape.n_decode_keys};
    double share =
        (double)step_cost_ns(&engine->state.cost, &alone) / (double)step_cost_ns(&engine->state.cost, &plan->shape);
    return share < 1 ? share : 1;
}

void engine_stats_note_step(struct engine *engine, int64_t took_ns, double decode_share) {
    const struct plan *plan = &engine->plan;
    struct engine_stats *stats = &engine->stats;
    int n_decode = plan->n_decode_rows, n_prefill = plan->n_rows - n_decode;
    enum engine_step_kind kind = n_prefill == 0  ? ENGINE_STEP_DECODE
                                 : n_decode == 0 ? ENGINE_STEP_PREFILL
                                                 : ENGINE_STEP_MIXED;
    int64_t decode_ns = (int64_t)(decode_share * (double)took_ns);
    histogram_add(&stats->step_seconds[kind], (double)took_ns / 1e9, 1);
    stats->n_rows += plan->n_rows;
    stats->n_prefill_rows += n_prefill;
    stats->decode.busy_ns += decode_ns;
    stats->prefill.busy_ns += took_ns - decode_ns;
    stats->interference_ns += (took_ns - decode_ns) * n_decode;
}
