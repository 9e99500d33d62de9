#include "observe/diagnosis.h"

#include <string.h>

#include "base/mem.h"

#define BUCKET_NS 5000000000
#define N_RECENT 12
#define N_BASELINE 60
#define N_ILL 360 /* half an hour */
/* A rule ends when it has not held for so many evaluations in a row: at the edge of a bound it would come and go. */
#define N_QUIET 2
/* Who listens is told of one rule's beginning at most this often. */
#define TELL_NS 60000000000

struct state {
    bool is_firing;
    int n_held, n_quiet; /* evaluations in a row */
    int64_t since_ns;
    bool is_told; /* of this beginning */
    int64_t told_ns;
    char sentence[DIAGNOSIS_RULES_MAX_TEXT];
};

struct diagnosis {
    struct diagnosis_window window;
    struct state states[DIAGNOSIS_MAX_RULES];
    diagnosis_change_fn *on_change;
    void *owner;
};

struct diagnosis_window_options diagnosis_options(void) {
    return (struct diagnosis_window_options){
        .bucket_ns = BUCKET_NS, .n_recent = N_RECENT, .n_baseline = N_BASELINE, .n_ill = N_ILL};
}

enum status diagnosis_create(struct diagnosis **out_diagnosis, const struct diagnosis_window_options *options) {
    int n_rules;
    diagnosis_rules_table(&n_rules);
    REQUIRE(n_rules <= DIAGNOSIS_MAX_RULES);
    struct diagnosis *diagnosis = *out_diagnosis = mem_alloc(sizeof *diagnosis);
    if (!diagnosis) return STATUS_NOMEM;
    memset(diagnosis, 0, sizeof *diagnosis);
    diagnosis_window_init(&diagnosis->window, options);
    return STATUS_OK;
}

void diagnosis_destroy(struct diagnosis **diagnosis) {
    mem_free(*diagnosis);
    *diagnosis = NULL;
}

void diagnosis_listen(struct diagnosis *diagnosis, diagnosis_change_fn *on_change, void *owner) {
    diagnosis->on_change = on_change;
    diagnosis->owner = owner;
}

/* ---- rules ---- */

static void tell(const struct diagnosis *diagnosis, const struct diagnosis_rule *rule, const struct state *state,
                 int64_t now_ns) {
    if (!diagnosis->on_change) return;
    struct diagnosis_change change = {.rule = rule->name,
                                      .sentence = state->sentence,
                                      .advice = rule->advice,
                                      .is_begin = state->is_firing,
                                      .at_ns = now_ns,
                                      .since_ns = state->since_ns};
    diagnosis->on_change(diagnosis->owner, &change);
}

static void fire(const struct diagnosis *diagnosis, const struct diagnosis_rule *rule,
                 const struct diagnosis_facts *facts, struct state *state, int64_t now_ns) {
    bool is_new = !state->is_firing;
    state->n_quiet = 0;
    if (is_new && ++state->n_held < rule->n_held) return;
    if (is_new) state->since_ns = now_ns;
    state->is_firing = true;
    rule->say(facts, state->sentence);
    if (!is_new) return;
    state->is_told = !state->told_ns || now_ns - state->told_ns >= TELL_NS;
    if (!state->is_told) return;
    state->told_ns = now_ns;
    tell(diagnosis, rule, state, now_ns);
}

static void rest(const struct diagnosis *diagnosis, const struct diagnosis_rule *rule, struct state *state,
                 int64_t now_ns) {
    state->n_held = 0;
    if (!state->is_firing || ++state->n_quiet < N_QUIET) return;
    state->is_firing = false;
    if (state->is_told) tell(diagnosis, rule, state, now_ns);
}

static void evaluate(struct diagnosis *diagnosis, int64_t now_ns) {
    int n_rules;
    const struct diagnosis_rule *rules = diagnosis_rules_table(&n_rules);
    struct diagnosis_facts facts;
    bool is_explained[DIAGNOSIS_MAX_RULES] = {false}, is_ill = false; /* is_explained: by group */
    diagnosis_rules_read(&diagnosis->window, &facts);
    for (int i = 0; i < n_rules; i++) {
        enum diagnosis_group group = rules[i].group;
        bool holds = !(group != DIAGNOSIS_FRONT && is_explained[group]) && rules[i].holds(&facts);
        is_explained[group] |= holds;
        if (holds)
            fire(diagnosis, &rules[i], &facts, &diagnosis->states[i], now_ns);
        else
            rest(diagnosis, &rules[i], &diagnosis->states[i], now_ns);
        /* What was promised says nothing of how it is as a rule. */
        is_ill |= (holds || diagnosis->states[i].is_firing) && group != DIAGNOSIS_PROMISES;
    }
    if (is_ill) diagnosis_window_mark_ill(&diagnosis->window);
}

static void advance(struct diagnosis *diagnosis, int64_t now_ns) {
    if (!diagnosis_window_is_full(&diagnosis->window, now_ns)) return;
    diagnosis_window_close(&diagnosis->window, now_ns);
    evaluate(diagnosis, now_ns);
}

void diagnosis_note(struct diagnosis *diagnosis, const struct diagnosis_record *record, int64_t now_ns) {
    advance(diagnosis, now_ns);
    diagnosis_window_note(&diagnosis->window, record);
}

void diagnosis_sample(struct diagnosis *diagnosis, const struct engine_stats *stats, int64_t now_ns) {
    advance(diagnosis, now_ns);
    diagnosis_window_sample(&diagnosis->window, stats);
}

/* ---- what it says ---- */

const char *diagnosis_sentence(const struct diagnosis *diagnosis, const char *rule) {
    int n_rules;
    const struct diagnosis_rule *rules = diagnosis_rules_table(&n_rules);
    for (int i = 0; i < n_rules; i++)
        if (strcmp(rules[i].name, rule) == 0)
            return diagnosis->states[i].is_firing ? diagnosis->states[i].sentence : NULL;
    return NULL;
}

void diagnosis_write(const struct diagnosis *diagnosis, int64_t now_ns, struct json_write *json) {
    int n_rules;
    const struct diagnosis_rule *rules = diagnosis_rules_table(&n_rules);
    json_write_field_array(json, "diagnosis");
    for (int i = 0; i < n_rules; i++) {
        const struct state *state = &diagnosis->states[i];
        if (!state->is_firing) continue;
        json_write_object(json);
        json_write_field_text(json, "rule", rules[i].name);
        json_write_field_text(json, "sentence", state->sentence);
        json_write_field_text(json, "advice", rules[i].advice);
        json_write_field_int(json, "since_ms", (now_ns - state->since_ns) / 1000000);
        json_write_end_object(json);
    }
    json_write_end_array(json);
}

void diagnosis_write_sample(const struct engine_stats *stats, struct json_write *json) {
    struct engine_class_stats all = engine_stats_all(stats);
    json_write_field_int(json, "running", all.n_running);
    json_write_field_int(json, "waiting", all.n_waiting);
    json_write_field_int(json, "blocks", stats->groups[0].n_blocks);
    json_write_field_int(json, "held_blocks", stats->groups[0].n_held);
    json_write_field_int(json, "held_slots", stats->groups[0].n_held_slots);
    json_write_field_int(json, "preemptions", stats->n_preempted);
    json_write_field_int(json, "steps", stats->n_steps);
    json_write_field_int(json, "steps_us", stats->steps_ns / 1000);
    json_write_field_int(json, "rows", stats->n_rows);
    json_write_field_int(json, "prefill_rows", stats->n_prefill_rows);
    json_write_field_array(json, "misses");
    for (int i = 0; i < ENGINE_STATS_N_MISSES; i++) json_write_int(json, stats->n_misses[i]);
    json_write_end_array(json);
}
