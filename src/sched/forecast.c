#include "sched/forecast.h"

#include "base/mem.h"
#include "sched/prefill.h"
#include "sched/step_company.h"

#define MAX_ROUNDS 4096                     /* of one run */
#define UNKNOWN_AFTER_NS INT64_C(500000000) /* from then on newcomers' answers count */
#define UNKNOWN_POS 256
#define ROUNDS_BEFORE_COARSER 64 /* rounds until one more step is played at a time */

enum status forecast_init(struct forecast *forecast, int max_sequences) {
    size_t n = (size_t)max_sequences + 1;
    *forecast = (struct forecast){.sequences = mem_alloc_array(n, sizeof *forecast->sequences),
                                  .prompts = mem_alloc_array(n, sizeof *forecast->prompts),
                                  .indices = mem_alloc_array(n, sizeof(int)),
                                  .order = mem_alloc_array(n, sizeof(int)),
                                  .n_rows = mem_alloc_array(n, sizeof(int))};
    if (forecast->sequences && forecast->prompts && forecast->indices && forecast->order && forecast->n_rows)
        return STATUS_OK;
    forecast_deinit(forecast);
    return STATUS_NOMEM;
}

void forecast_deinit(struct forecast *forecast) {
    mem_free(forecast->sequences);
    mem_free(forecast->prompts);
    mem_free(forecast->indices);
    mem_free(forecast->order);
    mem_free(forecast->n_rows);
    *forecast = (struct forecast){0};
}

/* ---- what is known now ---- */

static int expected_answer(const struct plan_state *state, int max_new) {
    int n = state->answer_tokens >= 1 ? (int)state->answer_tokens : max_new;
    return n < max_new ? n : max_new;
}

/* What the tokens that are known and the answer that is expected will take, a block more at least (room). */
static void count_blocks(const struct plan_state *state, int n_tokens, int n_answer, int max_new, int *out_n_blocks) {
    int n_more = n_answer > state->groups->block_tokens ? n_answer : state->groups->block_tokens;
    int n_most = max_new > 1 ? max_new - 1 : 0;
    for (int g = 0; g < state->groups->n_groups; g++)
        out_n_blocks[g] =
            kv_groups_n_peak(state->groups, g, n_tokens + (n_more < n_most ? n_more : n_most), state->limits.max_rows);
}

static bool has_blocks(const struct forecast *forecast, const struct forecast_sequence *sequence) {
    for (int g = 0; g < KV_LAYERS_MAX_GROUPS; g++)
        if (sequence->n_blocks[g] > forecast->n_free_blocks[g]) return false;
    return true;
}

/* sign: 1 gives the blocks back, -1 takes them. */
static void move_blocks(struct forecast *forecast, const struct forecast_sequence *sequence, int sign) {
    for (int g = 0; g < KV_LAYERS_MAX_GROUPS; g++) forecast->n_free_blocks[g] += sign * sequence->n_blocks[g];
}

static void load_sequence(struct forecast *forecast, const struct plan_state *state, const struct sequence *sequence) {
    struct forecast_sequence *out = &forecast->sequences[forecast->n_sequences++];
    bool is_waiting = sequence->state == SEQ_WAITING, is_decoding = sequence_is_decoding(sequence);
    int max_new = sequence->max_tokens - sequence->n_tokens;
    *out = (struct forecast_sequence){.terms = &sequence->terms,
                                      .is_resumed = sequence->n_tokens > sequence->n_prompt,
                                      .pos = is_waiting ? sequence->terms.n_cached : sequence->n_computed,
                                      .n_prompt = sequence->n_tokens,
                                      .logits_from = prefill_logits_from(sequence),
                                      .n_answer = expected_answer(state, max_new)};
    out->phase = is_decoding ? FORECAST_DECODE : is_waiting ? FORECAST_WAITING : FORECAST_PREFILL;
    count_blocks(state, sequence->n_tokens, out->n_answer, max_new, out->n_blocks);
    if (is_waiting) return;
    /* What it will still take is as good as taken; a table that is longer than expected is held. */
    for (int g = 0; g < state->groups->n_groups; g++) {
        int n_held = kv_table_n_held(&sequence->kv, g);
        if (out->n_blocks[g] < n_held) out->n_blocks[g] = n_held;
        forecast->n_free_blocks[g] -= out->n_blocks[g] - n_held;
    }
}

void forecast_load(struct forecast *forecast, const struct plan_state *state, int64_t now_ns) {
    forecast->n_sequences = 0;
    forecast->now_ns = forecast->begin_ns = now_ns;
    for (int g = 0; g < state->groups->n_groups; g++)
        forecast->n_free_blocks[g] = block_pool_n_available(&state->groups->groups[g].pool);
    forecast->policy = state->policy;
    for (int i = 0; i < state->n_sequences; i++)
        if (!state->sequences[i]->is_cancelled) load_sequence(forecast, state, state->sequences[i]);
}

void forecast_add(struct forecast *forecast, const struct plan_state *state, const struct terms *terms, int n_prompt,
                  int n_cached, int logits_from, int max_new) {
    struct forecast_sequence *out = &forecast->sequences[forecast->n_sequences++];
    *out =
        (struct forecast_sequence){.terms = terms,
                                   .phase = FORECAST_WAITING,
                                   .pos = n_cached,
                                   .n_prompt = n_prompt,
                                   .logits_from = max_new > 0 && logits_from >= n_prompt ? n_prompt - 1 : logits_from,
                                   .n_answer = expected_answer(state, max_new)};
    count_blocks(state, n_prompt, out->n_answer, max_new, out->n_blocks);
}

/* ---- one round: a step, or several like it ---- */

static bool is_prompt(const struct forecast_sequence *sequence) {
    return sequence->phase == FORECAST_WAITING || sequence->phase == FORECAST_PREFILL;
}

static bool has_interactive_prompt(const struct forecast *forecast) {
    for (int i = 0; i < forecast->n_sequences; i++)
        if (is_prompt(&forecast->sequences[i]) && forecast->sequences[i].terms->service_class == TERMS_INTERACTIVE)
            return true;
    return false;
}

/* Decoding batch sequences pass while interactive prompts wait (decode). */
static bool batch_yields(const struct forecast *forecast) {
    return forecast->policy.kind != POLICY_FCFS && has_interactive_prompt(forecast);
}

static bool decodes(const struct forecast_sequence *sequence, bool batch_yields) {
    if (sequence->phase != FORECAST_DECODE) return false;
    return !batch_yields || sequence->terms->service_class == TERMS_INTERACTIVE;
}

/* The decode rows of a step; rows are assumed to suffice for all. Farther ahead there will be answers of requests that
 * have not come yet: as many as of late. */
static struct step_shape decode_shape(const struct forecast *forecast, const struct plan_state *state, bool yields) {
    const struct step_cost *cost = &state->cost;
    struct step_shape shape = {0};
    for (int i = 0; i < forecast->n_sequences; i++)
        if (decodes(&forecast->sequences[i], yields)) step_cost_add_decode(cost, &shape, forecast->sequences[i].pos);
    if (forecast->now_ns - forecast->begin_ns < UNKNOWN_AFTER_NS) return shape;
    while (shape.n_decode_rows < (int)(state->decode_rows + 0.5)) step_cost_add_decode(cost, &shape, UNKNOWN_POS);
    return shape;
}

static enum step_urgency urgency_of(const struct forecast *forecast, const struct plan_state *state) {
    if (has_interactive_prompt(forecast)) return STEP_PROMPT;
    for (int i = 0; i < forecast->n_sequences; i++) {
        const struct forecast_sequence *sequence = &forecast->sequences[i];
        if (sequence->phase != FORECAST_DONE && sequence->terms->service_class == TERMS_INTERACTIVE) return STEP_READY;
    }
    return state->urgency == STEP_RELAXED ? STEP_RELAXED : STEP_READY;
}

static void order_prompts(struct forecast *forecast, const struct step_cost *cost, const struct step_pace *pace) {
    int n = 0;
    for (int i = 0; i < forecast->n_sequences; i++) {
        const struct forecast_sequence *sequence = &forecast->sequences[i];
        forecast->n_rows[i] = 0;
        if (!is_prompt(sequence)) continue;
        forecast->indices[n] = i;
        forecast->prompts[n++] =
            (struct policy_prompt){.terms = sequence->terms,
                                   .work_ns = step_bound_work_ns(cost, pace, sequence->pos, sequence->n_prompt),
                                   .is_resumed = sequence->is_resumed,
                                   .owner = -1};
    }
    forecast->n_prompts = n;
    policy_refresh(&forecast->policy, forecast->prompts, n);
    policy_order(&forecast->policy, forecast->prompts, n, forecast->now_ns, pace, forecast->order);
    for (int i = 0; i < n && forecast->now_ns == forecast->begin_ns; i++)
        forecast->sequences[forecast->indices[i]].is_yielding = forecast->prompts[i].is_yielding;
}

static int n_logits_of(const struct forecast_sequence *sequence, int n_rows) {
    int to = sequence->pos + n_rows;
    int first = sequence->logits_from > sequence->pos ? sequence->logits_from : sequence->pos;
    return to > first ? to - first : 0;
}

/* Blocks for a prompt that starts; an interactive one takes those of batch sequences (room). */
static bool make_blocks(struct forecast *forecast, const struct forecast_sequence *starting) {
    bool may_interrupt = starting->terms->service_class == TERMS_INTERACTIVE && forecast->policy.kind != POLICY_FCFS;
    for (int i = forecast->n_sequences - 1; i >= 0 && may_interrupt && !has_blocks(forecast, starting); i--) {
        struct forecast_sequence *sequence = &forecast->sequences[i];
        bool is_running = sequence->phase == FORECAST_PREFILL || sequence->phase == FORECAST_DECODE;
        if (!is_running || sequence->terms->service_class != TERMS_BATCH || forecast->n_rows[i] > 0) continue;
        if (sequence->phase == FORECAST_DECODE) sequence->n_prompt = sequence->pos + 1;
        sequence->is_resumed |= sequence->phase == FORECAST_DECODE;
        sequence->phase = FORECAST_WAITING;
        sequence->pos = 0;
        move_blocks(forecast, sequence, 1);
    }
    return has_blocks(forecast, starting);
}

/* Gives prompts their rows of the step, as prefill does. Returns how many prompts got some. */
static int fill(struct forecast *forecast, const struct plan_state *state, struct step_shape *shape,
                const struct step_pace *pace) {
    int64_t limit_ns = state->limits.step.is_unbounded ? STEP_COST_MAX_NS : pace->limit_ns;
    int n_left = state->limits.max_prefill_rows, n_chunks = 0;
    struct step_shape decode = *shape;
    struct step_company company =
        step_company_begin(&forecast->policy, state->limits.step.is_unbounded, forecast->prompts, forecast->n_prompts);
    for (int i = 0; i < forecast->n_prompts && n_left > 0; i++) {
        int index = forecast->indices[forecast->order[i]];
        struct forecast_sequence *sequence = &forecast->sequences[index];
        bool must_start = sequence->phase == FORECAST_WAITING;
        if (must_start && !make_blocks(forecast, sequence)) continue;
        int n = sequence->n_prompt - sequence->pos;
        if (n > n_left) n = n_left;
        n = step_cost_max_prefill(&state->cost, shape, sequence->pos, n, sequence->logits_from, limit_ns);
        if (n == 0 && n_chunks > 0) break;
        if (n == 0) n = 1;
        struct step_shape joined = *shape;
        step_cost_add_prefill(&state->cost, &joined, sequence->pos, sequence->pos + n, n_logits_of(sequence, n));
        if (!step_company_joins(&company, &state->cost, &decode, shape, &joined)) break;
        if (must_start) move_blocks(forecast, sequence, -1);
        sequence->phase = FORECAST_PREFILL;
        forecast->n_rows[index] = n;
        n_left -= n;
        n_chunks++;
        *shape = joined;
        if (sequence->pos + n == sequence->n_prompt)
            step_company_end(&company, policy_weight(&forecast->prompts[forecast->order[i]]));
    }
    return n_chunks;
}

/* How many steps like this one may be played at a time: while one prompt has the step to itself and does not end. */
static int n_like_steps(const struct forecast *forecast, int n_chunks, int max_steps) {
    if (n_chunks == 0) {
        /* Nothing but decode: until somebody ends, who may free blocks. */
        int n = max_steps;
        for (int i = 0; i < forecast->n_sequences; i++) {
            const struct forecast_sequence *sequence = &forecast->sequences[i];
            if (sequence->phase == FORECAST_DECODE && sequence->n_answer < n) n = sequence->n_answer;
        }
        return n > 1 ? n : 1;
    }
    if (n_chunks > 1) return 1;
    for (int i = 0; i < forecast->n_sequences; i++) {
        if (forecast->n_rows[i] == 0) continue;
        const struct forecast_sequence *sequence = &forecast->sequences[i];
        int n = (sequence->n_prompt - sequence->pos - 1) / forecast->n_rows[i];
        return n < 1 ? 1 : n < max_steps ? n : max_steps;
    }
    return 1;
}

static void advance(struct forecast *forecast, const struct plan_state *state, struct forecast_sequence *sequence,
                    int n_rows, int n_steps, const struct step_pace *pace, bool yields) {
    if (sequence->phase == FORECAST_DECODE && !decodes(sequence, yields)) return;
    if (sequence->phase == FORECAST_DECODE) {
        sequence->pos += n_steps;
        sequence->n_answer -= n_steps;
    } else if (n_rows > 0) {
        int to = sequence->pos + n_rows * n_steps;
        policy_charge(&forecast->policy, sequence->terms, step_bound_work_ns(&state->cost, pace, sequence->pos, to));
        sequence->pos = to;
        if (to < sequence->n_prompt) return;
        sequence->phase = FORECAST_DECODE;
        sequence->n_answer--;
        sequence->first_token_ns = forecast->now_ns;
    } else {
        return;
    }
    if (sequence->n_answer > 0) return;
    sequence->phase = FORECAST_DONE;
    move_blocks(forecast, sequence, 1);
}

/* False if nothing can go on. */
static bool play_round(struct forecast *forecast, const struct plan_state *state, int max_steps) {
    const struct step_cost *cost = &state->cost;
    bool yields = batch_yields(forecast);
    struct step_shape shape = decode_shape(forecast, state, yields);
    struct step_pace pace =
        step_bound_pace(cost, &state->limits.step, &shape, urgency_of(forecast, state), state->limits.max_prefill_rows);
    order_prompts(forecast, cost, &pace);
    struct step_shape decode = shape;
    int n_chunks = fill(forecast, state, &shape, &pace);
    if (n_chunks == 0 && yields) {
        /* All prompts wait for blocks. */
        yields = false;
        shape = decode = decode_shape(forecast, state, false);
    }
    if (shape.n_rows == 0) return false;
    int n_steps = n_like_steps(forecast, n_chunks, max_steps);
    if (n_chunks == 1 && n_steps > 1) {
        /* Later ones see more keys: those of the middle one stand for all. */
        for (int i = 0; i < forecast->n_sequences; i++) {
            const struct forecast_sequence *sequence = &forecast->sequences[i];
            int n = forecast->n_rows[i], middle = sequence->pos + n * (n_steps - 1) / 2;
            if (n == 0) continue;
            shape = decode;
            step_cost_add_prefill(cost, &shape, middle, middle + n, 0);
        }
    }
    forecast->now_ns += n_steps * step_cost_ns(cost, &shape);
    for (int i = 0; i < forecast->n_sequences; i++)
        advance(forecast, state, &forecast->sequences[i], forecast->n_rows[i], n_steps, &pace, yields);
    return true;
}

static bool is_open(const struct forecast *forecast) {
    for (int i = 0; i < forecast->n_sequences; i++) {
        const struct forecast_sequence *sequence = &forecast->sequences[i];
        bool is_promise = sequence->terms->promise_ns && sequence->terms->service_class == TERMS_INTERACTIVE;
        bool is_wanted = is_promise || i == forecast->n_sequences - 1;
        if (is_wanted && is_prompt(sequence)) return true;
    }
    return false;
}

void forecast_run(struct forecast *forecast, const struct plan_state *state) {
    for (int round = 0; round < MAX_ROUNDS && is_open(forecast); round++)
        if (!play_round(forecast, state, 1 + round / ROUNDS_BEFORE_COARSER)) break;
    /* Whoever is not through by then comes after all that was played. */
    for (int i = 0; i < forecast->n_sequences; i++) {
        struct forecast_sequence *sequence = &forecast->sequences[i];
        if (!is_prompt(sequence)) continue;
        struct step_shape all = {0};
        step_cost_add_prefill(&state->cost, &all, sequence->pos, sequence->n_prompt, 1);
        sequence->first_token_ns = forecast->now_ns + step_cost_ns(&state->cost, &all);
    }
}
