#include "engine/harvest.h"

#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "engine/outbox.h"
#include "sched/commit.h"
#include "sched/prefill.h"

static bool is_prompt(const struct plan_item *item) {
    return item->from < item->sequence->n_prompt;
}

static const float *next_item_logits(const struct engine *engine, const struct plan_item *item, const float *logits) {
    return logits + (size_t)(item->to - item->logits_from) * (size_t)engine->model.n_vocab;
}

/* ---- picks ---- */

static void pick_one(void *arg, int task_idx, int worker_idx) {
    struct engine *engine = arg;
    struct pick *pick = &engine->picks[task_idx];
    if (pick->ask.sampling) pick->token = sampler_pick(&engine->sampler, worker_idx, &pick->ask);
    if (pick->out_logprobs && pick->token != SAMPLER_NONE)
        sampler_logprobs(&engine->sampler, worker_idx, pick->ask.logits, pick->token, pick->n_top, pick->out_logprobs);
}

/* The ids that may not come because it is too early for them to end the answer. */
static int banned_ids(const struct request *request, int n_new, const uint32_t **out_ids) {
    int first = request->ignore_eos ? request->n_end_tokens : 0;
    *out_ids = request->stop_tokens + first;
    return n_new < request->min_new ? request->n_stop_tokens - first : 0;
}

static const uint32_t *fill_mask(struct engine *engine, const struct engine_slot *slot) {
    const struct token_mask *mask = &slot->request->mask;
    size_t n_words = SAMPLER_MASK_WORDS(engine->model.n_vocab);
    uint32_t *words = engine->mask_words + (size_t)(slot - engine->slots) * n_words;
    if (!mask->fill) return NULL;
    memset(words, 0, n_words * sizeof *words);
    return mask->fill(mask->arg, slot->choice, words) ? words : NULL;
}

/* The next token of a choice that has n_new. */
static void ask_for_token(struct engine *engine, const struct engine_slot *slot, int n_new, const float *logits) {
    struct request *request = slot->request;
    size_t n_entries = 1 + (size_t)request->n_top_logprobs;
    struct pick *pick = &engine->picks[engine->n_picks++];
    *pick = (struct pick){.ask = {.sampling = &request->sampling,
                                  .logits = logits,
                                  .tokens = message_tokens(request, slot->choice),
                                  .n_prompt = request->n_prompt,
                                  .n_tokens = request->n_prompt + n_new,
                                  .choice = slot->choice,
                                  .mask = fill_mask(engine, slot)},
                          .n_top = request->n_top_logprobs};
    pick->ask.n_banned = banned_ids(request, n_new, &pick->ask.banned);
    if (request->logprobs)
        pick->out_logprobs =
            request->logprobs + ((size_t)slot->choice * (size_t)request->max_new + (size_t)n_new) * n_entries;
}

static struct engine_slot *slot_of_choice(const struct engine *engine, const struct request *request, uint32_t choice) {
    int slot = 0;
    while (engine->slots[slot].request != request || engine->slots[slot].choice != choice) slot++;
    return &engine->slots[slot];
}

/* After the prompt all choices sample from one row. */
static bool forks(const struct request *request) {
    return request->n_choices > 1 && !request->is_forked;
}

/* last: logits of the item's last row. */
static void ask_for_tokens(struct engine *engine, const struct plan_item *item, const float *last) {
    const struct engine_slot *slot = engine_slot_of(engine, item->sequence);
    const struct request *request = slot->request;
    ask_for_token(engine, slot, item->sequence->n_tokens - request->n_prompt, last);
    for (int i = 1; forks(request) && i < request->n_choices; i++)
        ask_for_token(engine, slot_of_choice(engine, request, (uint32_t)i), 0, last);
}

/* Row p of the prompt tells how likely its token p + 1 was. */
static void ask_for_prompt(struct engine *engine, const struct plan_item *item, const float *logits) {
    struct request *request = engine_slot_of(engine, item->sequence)->request;
    for (int pos = item->logits_from; pos < item->to && pos + 1 < request->n_prompt; pos++) {
        size_t row = (size_t)(pos - item->logits_from);
        engine->picks[engine->n_picks++] = (struct pick){
            .ask = {.logits = logits + row * (size_t)engine->model.n_vocab},
            .token = request->tokens[pos + 1],
            .n_top = request->n_top_logprobs,
            .out_logprobs = request->prompt_logprobs + (size_t)(pos + 1) * (1 + (size_t)request->n_top_logprobs)};
    }
}

static void hand_out_logits(struct engine *engine, const struct plan_item *item, const float *logits) {
    struct request *request = engine_slot_of(engine, item->sequence)->request;
    size_t n_vocab = (size_t)engine->model.n_vocab;
    int from = item->logits_from > request->logits_from ? item->logits_from : request->logits_from;
    int to = item->to < request->n_prompt ? item->to : request->n_prompt;
    if (!request->logits || from >= to) return;
    memcpy(request->logits + (size_t)(from - request->logits_from) * n_vocab,
           logits + (size_t)(from - item->logits_from) * n_vocab, (size_t)(to - from) * n_vocab * sizeof(float));
}

static void make_picks(struct engine *engine) {
    const float *logits = engine->logits;
    engine->n_picks = 0;
    for (int i = 0; i < engine->plan.n_items; i++) {
        const struct plan_item *item = &engine->plan.items[i];
        const float *next = next_item_logits(engine, item, logits);
        bool is_wanted = !item->sequence->is_cancelled;
        if (is_wanted && is_prompt(item)) {
            hand_out_logits(engine, item, logits);
            if (engine_slot_of(engine, item->sequence)->request->prompt_logprobs) ask_for_prompt(engine, item, logits);
        }
        if (is_wanted && item->is_sampled) ask_for_tokens(engine, item, next - engine->model.n_vocab);
        logits = next;
    }
    if (engine->n_picks == 1) pick_one(engine, 0, 0);
    if (engine->n_picks > 1) thread_pool_run(engine->pool, pick_one, engine, engine->n_picks);
}

/* ---- hidden states ---- */

/* Sums in the order of positions, in double: the same for every split into chunks. */
static void add_hidden(struct engine *engine, const struct plan_item *item, const float *hidden, int n_rows) {
    size_t d_model = (size_t)engine->model.d_model;
    double *sums = engine->pooled + (size_t)engine_slot_idx(engine, item->sequence) * d_model;
    if (item->to - n_rows == item->sequence->n_prompt - item->sequence->n_hidden)
        memset(sums, 0, d_model * sizeof *sums);
    for (int row = 0; row < n_rows; row++)
        for (size_t i = 0; i < d_model; i++) sums[i] += (double)hidden[(size_t)row * d_model + i];
}

static void hand_out_embedding(struct engine *engine, const struct sequence *sequence, struct request *request) {
    size_t d_model = (size_t)engine->model.d_model;
    const double *sums = engine->pooled + (size_t)engine_slot_idx(engine, sequence) * d_model;
    double scale = 1.0 / sequence->n_hidden, squares = 0;
    for (size_t i = 0; i < d_model; i++) squares += sums[i] * sums[i];
    if (request->is_normalised) scale = squares > 0 ? 1 / sqrt(squares) : 0;
    for (size_t i = 0; i < d_model; i++) request->embedding[i] = (float)(sums[i] * scale);
}

static void pool_hidden(struct engine *engine, const struct model_batch *batch) {
    const float *hidden = engine->hidden;
    if (!batch->n_hidden_rows) return;
    forward_hidden(engine->forward, batch, engine->hidden);
    for (int i = 0; i < engine->plan.n_items; i++) {
        const struct plan_item *item = &engine->plan.items[i];
        const struct sequence *sequence = item->sequence;
        int from = sequence->n_prompt - sequence->n_hidden, to = sequence->n_prompt;
        if (from < item->from) from = item->from;
        if (from < sequence->n_done) from = sequence->n_done; /* added before it was preempted */
        if (to > item->to) to = item->to;
        if (from >= to) continue;
        add_hidden(engine, item, hidden, to - from);
        hidden += (size_t)(to - from) * (size_t)engine->model.d_model;
        if (to == sequence->n_prompt) hand_out_embedding(engine, sequence, engine_slot_of(engine, sequence)->request);
    }
}

/* ---- accounts ---- */

static void account(struct engine *engine, const struct plan_item *item, int64_t now_ns) {
    struct request *request = engine_slot_of(engine, item->sequence)->request;
    struct phase_stats *stats = &request->stats;
    bool is_prefill = is_prompt(item);
    engine_stats_note_work(engine, request, item, is_prefill);
    if (!is_prefill || item->sequence->n_tokens > item->sequence->n_prompt) return;
    if (!stats->prefill_start_ns) stats->prefill_start_ns = engine->step_start_ns;
    stats->prefill_end_ns = now_ns;
    stats->n_prefill_steps++;
    stats->n_cached_tokens = item->sequence->n_cached_tokens;
    if (stats->n_done_tokens < item->to) stats->n_done_tokens = item->to;
    if (!item->sequence->is_cancelled) outbox_send_progress(engine, request);
    if (item->to == item->sequence->n_prompt && !stats->first_token_ns)
        phase_stats_switch(stats, PHASE_FIRST_SAMPLE, now_ns);
}

/* ---- tokens ---- */

static bool is_stop_token(const struct request *request, uint32_t token) {
    for (int i = request->ignore_eos ? request->n_end_tokens : 0; i < request->n_stop_tokens; i++)
        if (request->stop_tokens[i] == token) return true;
    return false;
}

static void take_token(struct engine *engine, const struct plan_item *item, uint32_t token) {
    struct sequence *sequence = item->sequence;
    const struct engine_slot *slot = engine_slot_of(engine, sequence);
    struct request *request = slot->request;
    if (token == SAMPLER_NONE) {
        outbox_finish(engine, sequence, FINISH_STOP);
        return;
    }
    commit_token(item, token);
    engine->stats.n_new_tokens++;
    request->stats.last_token_ns = clock_now_ns();
    if (!request->stats.first_token_ns) {
        request->stats.first_token_ns = request->stats.last_token_ns;
        engine_stats_note_prompt(engine, request, sequence->n_cached_tokens);
    }
    phase_stats_switch(&request->stats, PHASE_DECODE, request->stats.last_token_ns);
    if (request->mask.accept) request->mask.accept(request->mask.arg, slot->choice, token);
    if (is_stop_token(request, token)) {
        outbox_finish(engine, sequence, FINISH_STOP);
        return;
    }
    outbox_send_token(engine, sequence);
    if (sequence->n_tokens == sequence->max_tokens) outbox_finish(engine, sequence, FINISH_LENGTH);
}

/* The other choices become sequences that share the prompt's blocks. */
static void fork_choices(struct engine *engine, struct sequence *first, struct request *request) {
    for (int i = 1; i < request->n_choices; i++) {
        struct engine_slot *slot = slot_of_choice(engine, request, (uint32_t)i);
        struct sequence *sequence = &engine->sequences[slot - engine->slots];
        sequence->tokens = message_tokens(request, slot->choice);
        prefill_fork(sequence, first, &engine->state);
        engine_copy_blocks(engine, &sequence->kv);
    }
    request->is_forked = true;
}

static void take_tokens(struct engine *engine, const struct plan_item *item, const struct pick *picks) {
    struct request *request = engine_slot_of(engine, item->sequence)->request;
    bool is_first = forks(request);
    int n_choices = request->n_choices;
    struct sequence *sequences[REQUEST_MAX_CHOICES] = {item->sequence};
    if (is_first) fork_choices(engine, item->sequence, request);
    for (int i = 1; is_first && i < n_choices; i++)
        sequences[i] = &engine->sequences[slot_of_choice(engine, request, (uint32_t)i) - engine->slots];
    for (int i = 0; i < (is_first ? n_choices : 1); i++)
        take_token(engine, &(struct plan_item){.sequence = sequences[i]}, picks[i].token);
}

/* Rows of a cancelled sequence are as good as any: its full blocks stay as cache. */
static void commit_item(struct engine *engine, const struct plan_item *item, const struct pick **pick) {
    struct sequence *sequence = item->sequence;
    commit_rows(item);
    if (sequence->is_cancelled) return;
    while (item->is_sampled && !(*pick)->ask.sampling) (*pick)++;
    if (item->is_sampled) {
        int n_tokens =
            forks(engine_slot_of(engine, sequence)->request) ? engine_slot_of(engine, sequence)->request->n_choices : 1;
        take_tokens(engine, item, *pick);
        *pick += n_tokens;
    } else if (sequence->n_computed == sequence->max_tokens) {
        engine_stats_note_prompt(engine, engine_slot_of(engine, sequence)->request, sequence->n_cached_tokens);
        outbox_finish(engine, sequence, FINISH_LENGTH);
    }
}

void harvest_step(struct engine *engine, const struct model_batch *batch, int64_t now_ns) {
    const struct pick *pick = engine->picks;
    for (int i = 0; i < engine->plan.n_items; i++) account(engine, &engine->plan.items[i], now_ns);
    make_picks(engine);
    pool_hidden(engine, batch);
    for (int i = 0; i < engine->plan.n_items; i++) {
        const struct plan_item item = engine->plan.items[i];
        commit_item(engine, &item, &pick);
    }
}
