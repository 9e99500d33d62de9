#include "engine/engine_stats.h"

#include <string.h>

#include "engine/engine_state.h"
#include "sched/room.h"

#define LATE_FACTOR (1 + ADMISSION_LATE_SHARE)

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

static struct engine_group_stats count_group(const struct engine *engine, int group) {
    const struct kv_group *counted = &engine->groups.groups[group];
    struct room_usage usage = room_usage_of(&engine->state, group);
    return (struct engine_group_stats){.window = counted->window,
                                       .n_blocks = counted->pool.n_blocks,
                                       .n_free = counted->pool.n_free,
                                       .n_reusable = counted->pool.n_reusable,
                                       .n_held = counted->pool.n_held,
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

void engine_stats_note_prompt(struct engine_stats *stats, const struct request *request, int n_cached) {
    const struct phase_stats *phases = &request->stats;
    struct engine_promise_stats *promises = &stats->promises[request->class_];
    stats->n_prompt_tokens += request->n_prompt;
    if (request->has_cache) {
        stats->n_cache_asked += request->n_prompt;
        stats->n_cache_found += n_cached;
    }
    if (!phases->predicted_ns || !phases->first_token_ns) return;
    int64_t predicted_ns = phases->predicted_ns - phases->admitted_ns;
    int64_t measured_ns = phases->first_token_ns - phases->admitted_ns;
    promises->n++;
    promises->n_late += (double)measured_ns > LATE_FACTOR * (double)predicted_ns;
    promises->predicted_ns += predicted_ns;
    promises->measured_ns += measured_ns;
    promises->error_ns += measured_ns > predicted_ns ? measured_ns - predicted_ns : predicted_ns - measured_ns;
}
