#include "bench/phases.h"

#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "bench/quantile.h"
#include "bench/words.h"

#define N_DECODE 32 /* answer tokens of a point, to measure decode at its context */
#define SHORT_PROMPT 128
#define LONG_PROMPT 4096
#define SHORT_ANSWER 16
#define LONG_ANSWER 256
#define SLACK_TOKENS 48  /* of the context: words are not exactly tokens */
#define SHORT_TOKENS 512 /* up to here a point is cheap and noisy: measured twice a round */
#define MAX_TEXT_BYTES ((size_t)32 << 20)
#define TIMEOUT_MS 600000
#define LARGEST_SHARE 0.2 /* of the budget that one request may be expected to take */
#define N_NEEDED 4        /* points of a series */
#define NEEDED_TOKENS 256

static const int lengths[] = {32, 64, 128, 256, 512, 1024, 2048, 3072, 4096, 6144, 8064, 12288, 16256, 24576, 32640};

struct measuring {
    struct phases *phases;
    const struct phases_options *options;
    struct load_client *client;
    struct load_answer answer;
    struct str system, user;
    uint64_t seed;
    uint32_t n_texts; /* made so far: each prompt is another one */
    double overhead_tokens, tokens_per_word;
    int64_t start_ns;
    phases_progress_fn *progress;
    void *owner;
    struct status_note *note;
};

/* ---- one request ---- */

static double elapsed_s(const struct measuring *measuring) {
    return (double)(clock_now_ns() - measuring->start_ns) / 1e9;
}

static int words_for(const struct measuring *measuring, double n_tokens) {
    double n = n_tokens / measuring->tokens_per_word;
    return n > 1 ? (int)n : 1;
}

/* n_user_words new ones, behind the shared system prompt if there is one. */
static enum status ask(struct measuring *measuring, bool is_shared, int n_user_words, int n_answer) {
    struct load_turn turns[] = {{"system", measuring->system.ptr}, {"user", NULL}};
    str_clear(&measuring->user);
    enum status status = words_append(&measuring->user, measuring->seed, ++measuring->n_texts, n_user_words);
    if (status) return status_fail(measuring->note, status, "no memory for a prompt");
    turns[1].text = measuring->user.ptr;
    struct load_ask asked = {.turns = is_shared ? turns : turns + 1,
                             .n_turns = is_shared ? 2 : 1,
                             .max_tokens = n_answer,
                             .timeout_ms = TIMEOUT_MS};
    if (measuring->progress) measuring->progress(measuring->owner, elapsed_s(measuring) / measuring->options->budget_s);
    status = load_client_ask(measuring->client, &asked, &measuring->answer, measuring->note);
    if (status) return status;
    if (measuring->answer.end != LOAD_OK)
        return status_fail(measuring->note, STATUS_PEER, "a request failed (%s): %s",
                           load_answer_end_name(measuring->answer.end), measuring->answer.note);
    if (measuring->answer.n_prompt < 1)
        return status_fail(measuring->note, STATUS_PEER, "the server does not count prompt tokens (no usage)");
    if (measuring->answer.n_content < 1)
        return status_fail(measuring->note, STATUS_PEER, "an answer came without any content");
    return STATUS_OK;
}

static void keep(struct measuring *measuring, enum phases_series series, int idx, int round) {
    struct phases *phases = measuring->phases;
    const struct load_answer *answer = &measuring->answer;
    if (phases->n_samples == PHASES_MAX_SAMPLES) return;
    struct phases_sample *sample = &phases->samples[phases->n_samples++];
    *sample = (struct phases_sample){.series = (int)series,
                                     .idx = idx,
                                     .round = round,
                                     .n_prompt = answer->n_prompt,
                                     .n_cached = answer->n_cached,
                                     .n_new = answer->n_new > 0 ? answer->n_new : answer->n_content,
                                     .ttft_ms = load_answer_ttft_ms(answer),
                                     .token_ms = load_answer_token_ms(answer),
                                     .total_ms = phase_stats_ms(answer->sent_ns, answer->ended_ns),
                                     .has_phases = answer->has_phases,
                                     .unaccounted_ms = answer->unaccounted_ms};
    memcpy(sample->phase_ms, answer->phase_ms, sizeof sample->phase_ms);
}

/* ---- what will be measured ---- */

static enum status calibrate(struct measuring *measuring) {
    static const int n_words[] = {40, 240};
    double n_tokens[2];
    measuring->tokens_per_word = 1;
    for (int i = 0; i < 2; i++) {
        enum status status = ask(measuring, false, n_words[i], 2);
        if (status) return status;
        n_tokens[i] = measuring->answer.n_prompt;
    }
    measuring->tokens_per_word = (n_tokens[1] - n_tokens[0]) / (n_words[1] - n_words[0]);
    measuring->overhead_tokens = n_tokens[0] - measuring->tokens_per_word * n_words[0];
    if (measuring->tokens_per_word < 0.2 || measuring->tokens_per_word > 20)
        return status_fail(measuring->note, STATUS_PEER, "%d words are %.0f tokens, %d words %.0f: that cannot be",
                           n_words[0], n_tokens[0], n_words[1], n_tokens[1]);
    return STATUS_OK;
}

static void add_case(struct phases *phases, int n_prompt, int n_answer, bool is_shared) {
    phases->cases[phases->n_cases++] = (struct phases_case){.prompt_name = n_prompt <= SHORT_PROMPT ? "short" : "long",
                                                            .answer_name = n_answer <= SHORT_ANSWER ? "short" : "long",
                                                            .is_shared = is_shared,
                                                            .n_wanted = n_prompt,
                                                            .n_answer = n_answer};
}

static void choose(struct measuring *measuring, int max_prompt) {
    struct phases *phases = measuring->phases;
    int shared = measuring->options->shared_tokens;
    if (shared > max_prompt / 2) shared = max_prompt / 2;
    phases->shared_tokens = shared;
    phases->shared[phases->n_shared++].n_wanted = shared + 64;
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        if (lengths[i] > max_prompt || lengths[i] < measuring->overhead_tokens + 4) continue;
        phases->cold[phases->n_cold++].n_wanted = lengths[i];
        if (lengths[i] > shared + 128 && phases->n_shared < PHASES_MAX_POINTS)
            phases->shared[phases->n_shared++].n_wanted = lengths[i];
    }
    int longest = max_prompt < LONG_PROMPT + LONG_ANSWER ? max_prompt - LONG_ANSWER : LONG_PROMPT;
    add_case(phases, SHORT_PROMPT, SHORT_ANSWER, false);
    add_case(phases, SHORT_PROMPT, LONG_ANSWER, false);
    add_case(phases, longest, SHORT_ANSWER, false);
    add_case(phases, longest, LONG_ANSWER, false);
    add_case(phases, longest, SHORT_ANSWER, true);
    add_case(phases, longest, LONG_ANSWER, true);
}

/* ---- the budget ---- */

/* Of a prompt's first token: from the longest one known, as if all cost were quadratic beyond it. */
static double expected_s(const struct phases *phases, int n_prompt) {
    const struct phases_sample *nearest = NULL;
    for (int i = 0; i < phases->n_samples; i++) {
        const struct phases_sample *sample = &phases->samples[i];
        if (sample->series == PHASES_COLD &&
            (!nearest || abs(sample->n_prompt - n_prompt) < abs(nearest->n_prompt - n_prompt)))
            nearest = sample;
    }
    if (!nearest) return 0;
    double ratio = (double)n_prompt / nearest->n_prompt;
    return nearest->ttft_ms / 1e3 * (ratio > 1 ? ratio * ratio : ratio);
}

/* n_before: points measured before this one in its series. The first round's first ones are, whatever the time: without
 * them nothing can be concluded. */
static bool is_affordable(const struct measuring *measuring, enum phases_series series, int n_prompt, int round,
                          int n_before) {
    static const double first_round[] = {[PHASES_COLD] = 0.5, [PHASES_SHARED] = 0.75, [PHASES_CASE] = 1};
    double budget_s = measuring->options->budget_s, wanted_s = expected_s(measuring->phases, n_prompt);
    if (round == 0 && n_before < N_NEEDED && n_prompt <= NEEDED_TOKENS + measuring->phases->shared_tokens) return true;
    if (wanted_s > LARGEST_SHARE * budget_s) return false;
    return elapsed_s(measuring) + wanted_s < (round == 0 ? first_round[series] : 1) * budget_s;
}

/* ---- a round ---- */

static enum status measure_cold(struct measuring *measuring, int round) {
    struct phases *phases = measuring->phases;
    for (int i = 0; i < phases->n_cold; i++) {
        int n_wanted = phases->cold[i].n_wanted, n_times = n_wanted <= SHORT_TOKENS ? 2 : 1;
        if (!is_affordable(measuring, PHASES_COLD, n_wanted, round, i) || (round > 0 && !phases->cold[i].n_samples)) {
            phases->is_cut = phases->is_cut || round == 0;
            continue;
        }
        for (int k = 0; k < n_times; k++) {
            enum status status =
                ask(measuring, false, words_for(measuring, n_wanted - measuring->overhead_tokens), N_DECODE);
            if (status) return status;
            keep(measuring, PHASES_COLD, i, round);
            phases->cold[i].n_samples++;
        }
    }
    return STATUS_OK;
}

static enum status ask_shared(struct measuring *measuring, int n_prompt, int n_answer) {
    double n_own = n_prompt - measuring->phases->shared_tokens - measuring->overhead_tokens;
    return ask(measuring, true, words_for(measuring, n_own), n_answer);
}

/* The first one only fills the server's cache. */
static enum status measure_shared(struct measuring *measuring, int round) {
    struct phases *phases = measuring->phases;
    enum status status = round == 0 ? ask_shared(measuring, phases->shared_tokens + 32, 2) : STATUS_OK;
    for (int i = 0; i < phases->n_shared && !status; i++) {
        int n_wanted = phases->shared[i].n_wanted;
        if (!is_affordable(measuring, PHASES_SHARED, n_wanted, round, i) || (round > 0 && !phases->shared[i].n_samples))
            continue;
        status = ask_shared(measuring, n_wanted, N_DECODE);
        if (status) return status;
        keep(measuring, PHASES_SHARED, i, round);
        phases->shared[i].n_samples++;
    }
    return status;
}

static enum status measure_cases(struct measuring *measuring, int round) {
    struct phases *phases = measuring->phases;
    for (int i = 0; i < phases->n_cases; i++) {
        struct phases_case *one = &phases->cases[i];
        if (!is_affordable(measuring, PHASES_CASE, one->n_wanted, round, i) || (round > 0 && !one->n_samples)) continue;
        enum status status = one->is_shared
                                 ? ask_shared(measuring, one->n_wanted, one->n_answer)
                                 : ask(measuring, false,
                                       words_for(measuring, one->n_wanted - measuring->overhead_tokens), one->n_answer);
        if (status) return status;
        keep(measuring, PHASES_CASE, i, round);
        one->n_samples++;
    }
    return STATUS_OK;
}

static enum status measure_rounds(struct measuring *measuring) {
    struct phases *phases = measuring->phases;
    double round_s = 0;
    for (int round = 0; round < PHASES_MAX_ROUNDS; round++) {
        double from_s = elapsed_s(measuring);
        if (round > 0 && from_s + round_s > measuring->options->budget_s) break;
        enum status status = measure_cold(measuring, round);
        if (!status) status = measure_shared(measuring, round);
        if (!status) status = measure_cases(measuring, round);
        if (status) return status;
        phases->n_rounds++;
        round_s = elapsed_s(measuring) - from_s;
    }
    return STATUS_OK;
}

static enum status run(struct measuring *measuring, int max_context) {
    struct phases *phases = measuring->phases;
    int max_prompt = max_context - N_DECODE - SLACK_TOKENS;
    if (measuring->options->max_prompt && measuring->options->max_prompt < max_prompt)
        max_prompt = measuring->options->max_prompt;
    if (max_prompt < LONG_ANSWER + 4 * SHORT_PROMPT)
        return status_fail(measuring->note, STATUS_LIMIT, "a context of %d tokens is too short to measure phases in",
                           max_context);
    enum status status = calibrate(measuring);
    if (status) return status;
    choose(measuring, max_prompt);
    status = words_append(&measuring->system, measuring->seed, 0, words_for(measuring, phases->shared_tokens));
    if (status) return status_fail(measuring->note, status, "no memory for a prompt");
    status = measure_rounds(measuring);
    if (status) return status;
    phases->wall_s = elapsed_s(measuring);
    phases_conclude(phases);
    if (phases->has_fit) return STATUS_OK;
    return status_fail(measuring->note, STATUS_LIMIT,
                       "too few lengths could be measured within %.0f s; --budget gives more",
                       measuring->options->budget_s);
}

enum status phases_measure(struct phases *phases, const struct load_target *target,
                           const struct phases_options *options, phases_progress_fn *progress, void *owner,
                           struct status_note *note) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    struct measuring measuring = {.phases = phases,
                                  .options = options,
                                  /* Other texts each time: the server may remember those of an earlier run. */
                                  .seed = (uint64_t)now.tv_sec * 1000003 + (uint64_t)now.tv_nsec,
                                  .start_ns = clock_now_ns(),
                                  .progress = progress,
                                  .owner = owner,
                                  .note = note};
    *phases = (struct phases){0};
    if (target->max_context < 1)
        return status_fail(note, STATUS_LIMIT, "%s does not say how long a context may be; --context does",
                           target->url);
    str_init(&measuring.system, MAX_TEXT_BYTES);
    str_init(&measuring.user, MAX_TEXT_BYTES);
    enum status status = load_client_create(&measuring.client, target, 1, note);
    if (!status && load_answer_init(&measuring.answer, LONG_ANSWER))
        status = status_fail(note, STATUS_NOMEM, "no memory for an answer");
    if (!status) status = run(&measuring, target->max_context);
    load_answer_deinit(&measuring.answer);
    load_client_destroy(&measuring.client);
    str_deinit(&measuring.system);
    str_deinit(&measuring.user);
    return status;
}

/* ---- conclusions ---- */

/* The values of one figure of a point's or case's samples; figure: its offset in the sample. */
static double median_of(const struct phases *phases, enum phases_series series, int idx, size_t figure_off,
                        double share) {
    double values[PHASES_MAX_SAMPLES];
    int n = 0;
    for (int i = 0; i < phases->n_samples; i++) {
        const struct phases_sample *sample = &phases->samples[i];
        if (sample->series != (int)series || sample->idx != idx) continue;
        memcpy(&values[n], (const char *)sample + figure_off, sizeof *values);
        n += values[n] >= 0;
    }
    if (n == 0) return -1;
    return share == 0.5 ? quantile_median(values, n) : quantile_of(values, n, share);
}

#define FIGURE(name) offsetof(struct phases_sample, name)

static const struct phases_sample *last_of(const struct phases *phases, enum phases_series series, int idx) {
    for (int i = phases->n_samples - 1; i >= 0; i--)
        if (phases->samples[i].series == (int)series && phases->samples[i].idx == idx) return &phases->samples[i];
    return NULL;
}

static void conclude_points(const struct phases *phases, enum phases_series series, struct phases_point *points,
                            int n_points) {
    for (int i = 0; i < n_points; i++) {
        const struct phases_sample *last = last_of(phases, series, i);
        if (!last) continue;
        points[i].n_prompt = last->n_prompt;
        points[i].n_cached = last->n_cached;
        points[i].ttft_ms = median_of(phases, series, i, FIGURE(ttft_ms), 0.5);
        points[i].least_ttft_ms = median_of(phases, series, i, FIGURE(ttft_ms), 0);
        points[i].most_ttft_ms = median_of(phases, series, i, FIGURE(ttft_ms), 1);
        points[i].token_ms = median_of(phases, series, i, FIGURE(token_ms), 0.5);
    }
}

static void conclude_cases(struct phases *phases) {
    for (int i = 0; i < phases->n_cases; i++) {
        struct phases_case *one = &phases->cases[i];
        const struct phases_sample *last = last_of(phases, PHASES_CASE, i);
        if (!last) continue;
        one->n_prompt = last->n_prompt;
        one->n_cached = last->n_cached;
        one->n_new = last->n_new;
        one->ttft_ms = median_of(phases, PHASES_CASE, i, FIGURE(ttft_ms), 0.5);
        double token_ms = median_of(phases, PHASES_CASE, i, FIGURE(token_ms), 0.5);
        one->decode_ms = token_ms > 0 ? token_ms * (one->n_new - 1) : 0;
    }
}

static void conclude_fits(struct phases *phases) {
    double n[PHASES_MAX_POINTS], ttft[PHASES_MAX_POINTS], context[PHASES_MAX_POINTS], token[PHASES_MAX_POINTS];
    int n_ttft = 0, n_token = 0;
    for (int i = 0; i < phases->n_cold; i++) {
        const struct phases_point *point = &phases->cold[i];
        if (!point->n_samples) continue;
        n[n_ttft] = point->n_prompt;
        ttft[n_ttft++] = point->ttft_ms;
        if (point->token_ms <= 0) continue;
        context[n_token] = point->n_prompt;
        token[n_token++] = point->token_ms;
    }
    phases->has_fit = fit_polynomial(n, ttft, n_ttft, 2, &phases->ttft);
    phases->has_decode_fit = fit_polynomial(context, token, n_token, 1, &phases->decode);
    phases->crossover_tokens = phases->has_fit && phases->ttft.c > 0 ? phases->ttft.b / phases->ttft.c : 0;
}

void phases_conclude(struct phases *phases) {
    conclude_points(phases, PHASES_COLD, phases->cold, phases->n_cold);
    conclude_points(phases, PHASES_SHARED, phases->shared, phases->n_shared);
    conclude_cases(phases);
    conclude_fits(phases);
}

double phases_even_tokens(const struct phases_point *point) {
    return point->n_samples && point->token_ms > 0 ? 1 + point->ttft_ms / point->token_ms : 0;
}

double phases_saved_ms(const struct phases *phases, const struct phases_point *shared) {
    const struct phases_point *cold = NULL;
    for (int i = 0; i < phases->n_cold && !cold; i++)
        if (phases->cold[i].n_wanted == shared->n_wanted) cold = &phases->cold[i];
    if (!shared->n_samples) return NAN;
    if (cold) return cold->n_samples ? cold->ttft_ms - shared->ttft_ms : NAN;
    return phases->has_fit ? fit_at(&phases->ttft, shared->n_prompt) - shared->ttft_ms : NAN;
}

double phases_prefill_share(const struct phases_case *one) {
    return one->ttft_ms / (one->ttft_ms + one->decode_ms);
}
