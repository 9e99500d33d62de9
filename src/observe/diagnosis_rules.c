#include "observe/diagnosis_rules.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* A factor alone would call 1 ms to 3 ms a trouble, a difference alone a slow machine's noise: both must be passed. */
#define UP 2.0           /* a p95 that doubled; what lies below 1.5 is called flat */
#define UP_MS 50.0       /* and that a reader feels: about half of what passes as at once */
#define ITL_UP 1.5       /* decode is steadier than first tokens */
#define ITL_UP_MS 5.0    /* per token */
#define MOST 0.5         /* of something is at one place */
#define MANY 0.3         /* of a first token's time is at a place that should take next to none */
#define FEW 0.25         /* of the requests: so few are not the traffic itself */
#define CHANGED 1.5      /* a quantity of the traffic differs from before */
#define COST_CHANGED 1.3 /* what the machine needs for the same work */
#define REFUSED 0.05     /* of the requests, for want of time or room */
#define LATE 0.25        /* of the promises */
#define MISSED 0.1       /* of the SLO: twice what a promise about p95 allows */
#define PREEMPTED 0.05   /* sequences that lost their blocks, by request */
#define USED_TO_HIT 0.3  /* of the prompt tokens */
#define BLOCKED 0.2      /* of the time that answers took */
#define BLOCKED_MANY 0.1 /* of the requests */
#define MIN_REQUESTS 10  /* that a p95 can be spoken of */
#define MIN_BEFORE 20
#define MIN_EVENTS 3    /* a single one is an accident */
#define LONG_FACTOR 4   /* of the baseline's p95 */
#define LONG_TOKENS 512 /* at least */
/* Buckets: a single one is no trouble; the broad rules give the narrow ones time to see what it is. */
#define SOON 2
#define LATER 4
#define NEVER_X 99.0 /* a factor beside nothing */

static double quotient(double of, double by) {
    if (by > 0) return of / by < NEVER_X ? of / by : NEVER_X;
    return of > 0 ? NEVER_X : 1;
}

static double share(double part, double whole) {
    return whole > 0 ? part / whole : 0;
}

static double rate_x(const struct diagnosis_facts *f, double now, double before) {
    return quotient(now / f->now.seconds, before / f->before.seconds);
}

/* ---- figures ---- */

static void read_figures(struct diagnosis_window *window, const struct diagnosis_span *span,
                         struct diagnosis_figures *out) {
    out->seconds = (double)window->options.bucket_ns / 1e9 * (span->n > 0 ? span->n : 1);
    out->sums = diagnosis_window_sums(span);
    out->n = (int)out->sums.n_run;
    for (int i = 0; i < DIAGNOSIS_N_QUANTITIES; i++) {
        int n;
        out->p50[i] = diagnosis_window_quantile(window, span, (enum diagnosis_quantity)i, 0.5, 0, &n);
        out->p95[i] = diagnosis_window_quantile(window, span, (enum diagnosis_quantity)i, 0.95, 0, NULL);
        if (i == DIAGNOSIS_ITL) out->n_answers = n;
    }
}

/* A first token took part_ms longer in this phase; of what all phases grew. */
static void read_grown(struct diagnosis_facts *f) {
    double all = 0;
    for (int i = 0; i < N_PHASES; i++) {
        double before = share(f->before.sums.part_ms[i], f->before.n), now = share(f->now.sums.part_ms[i], f->now.n);
        f->grown[i] = now > before ? now - before : 0;
        all += f->grown[i];
    }
    for (int i = 0; i < N_PHASES; i++) f->grown[i] = share(f->grown[i], all);
}

static void read_top_key(struct diagnosis_facts *f) {
    const double *tokens = f->now.sums.key_tokens, *before = f->before.sums.key_tokens;
    for (int i = 1; i < DIAGNOSIS_WINDOW_MAX_KEYS; i++)
        if (tokens[i] > tokens[f->top_key]) f->top_key = i;
    f->top_share = share(tokens[f->top_key], f->now.sums.n_computed_tokens);
    f->top_share_before = share(before[f->top_key], f->before.sums.n_computed_tokens);
    f->top_x = rate_x(f, tokens[f->top_key], before[f->top_key]);
}

static void read_long(struct diagnosis_facts *f) {
    const struct diagnosis_span *recent = &f->window->recent;
    f->long_tokens = (int)(LONG_FACTOR * f->before.p95[DIAGNOSIS_PROMPT]);
    if (f->long_tokens < LONG_TOKENS) f->long_tokens = LONG_TOKENS;
    f->long_prompts = diagnosis_window_long(recent, f->long_tokens);
    f->long_before = diagnosis_window_long(&f->window->baseline, f->long_tokens);
    f->short_p95 = diagnosis_window_quantile(f->window, recent, DIAGNOSIS_TTFT, 0.95, f->long_tokens, NULL);
    f->short_wait_p95 = diagnosis_window_quantile(f->window, recent, DIAGNOSIS_WAIT, 0.95, f->long_tokens, NULL);
}

void diagnosis_rules_read(struct diagnosis_window *window, struct diagnosis_facts *out) {
    *out = (struct diagnosis_facts){.window = window};
    read_figures(window, &window->recent, &out->now);
    read_figures(window, &window->baseline, &out->before);
    const double *now = out->now.p95, *before = out->before.p95;
    out->has_before = out->before.n >= MIN_BEFORE;
    out->ttft_x = quotient(now[DIAGNOSIS_TTFT], before[DIAGNOSIS_TTFT]);
    /* Prompts beside answers show in the p95 of decode, batch and contexts in all of it. */
    double itl = out->now.p50[DIAGNOSIS_ITL], itl_before = out->before.p50[DIAGNOSIS_ITL];
    out->itl_x = quotient(itl, itl_before);
    out->is_ttft_up = out->has_before && out->now.n >= MIN_REQUESTS && out->ttft_x >= UP &&
                      now[DIAGNOSIS_TTFT] - before[DIAGNOSIS_TTFT] >= UP_MS;
    out->is_itl_up = out->has_before && out->now.n_answers >= MIN_REQUESTS && itl_before > 0 && out->itl_x >= ITL_UP &&
                     itl - itl_before >= ITL_UP_MS;
    read_grown(out);
    read_top_key(out);
    read_long(out);
}

/* ---- words ---- */

static double phase_share(const struct diagnosis_facts *f, enum phase phase) {
    return share(f->now.sums.part_ms[phase], f->now.sums.ttft_ms);
}

static double percent(double of_one) {
    return 100 * of_one;
}

/* "TTFT p95 310 ms (x3.1), decode flat" */
static int say_both(const struct diagnosis_facts *f, char *out) {
    int n = snprintf(out, DIAGNOSIS_RULES_MAX_TEXT, "TTFT p95 %.0f ms", f->now.p95[DIAGNOSIS_TTFT]);
    if (f->has_before) n += snprintf(out + n, (size_t)(DIAGNOSIS_RULES_MAX_TEXT - n), " (x%.1f)", f->ttft_x);
    if (!f->has_before || f->before.p50[DIAGNOSIS_ITL] <= 0 || f->now.n_answers == 0) return n;
    if (f->is_itl_up)
        n += snprintf(out + n, (size_t)(DIAGNOSIS_RULES_MAX_TEXT - n), ", decode x%.1f", f->itl_x);
    else
        n += snprintf(out + n, (size_t)(DIAGNOSIS_RULES_MAX_TEXT - n), ", decode flat");
    return n;
}

static void say_after(char *out, int n, const char *format, ...) PRINTF_LIKE(3, 4);
static void say_after(char *out, int n, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(out + n, (size_t)(DIAGNOSIS_RULES_MAX_TEXT - n), format, arguments);
    va_end(arguments);
}

/* Whose requests, for the middle of a sentence. */
static const char *key_name(const struct diagnosis_facts *f, int key, char out[DIAGNOSIS_WINDOW_KEY_BYTES + 8]) {
    const char *name = f->window->key_names[key];
    if (!name[0]) return "who sends no key";
    snprintf(out, DIAGNOSIS_WINDOW_KEY_BYTES + 8, "key %s", name);
    return out;
}

/* ---- before the engine ---- */

static bool is_front_slow(const struct diagnosis_facts *f, enum diagnosis_quantity quantity, double part) {
    double now = f->now.p95[quantity], before = f->before.p95[quantity];
    return f->now.n >= MIN_REQUESTS && now - before >= UP_MS && part >= MANY &&
           (!f->has_before || quotient(now, before) >= UP);
}

static double text_share(const struct diagnosis_facts *f) {
    return phase_share(f, PHASE_TEXT_QUEUE) + phase_share(f, PHASE_TEMPLATE) + phase_share(f, PHASE_TOKENIZE);
}

static bool is_upload_slow(const struct diagnosis_facts *f) {
    return is_front_slow(f, DIAGNOSIS_READ, phase_share(f, PHASE_READ));
}

static void say_upload(const struct diagnosis_facts *f, char *out) {
    say_after(out, say_both(f, out),
              ": %.0f %% of it is read, until a request's bytes are whole, p95 %.0f ms: clients send their bodies "
              "slowly",
              percent(phase_share(f, PHASE_READ)), f->now.p95[DIAGNOSIS_READ]);
}

static bool is_hook_slow(const struct diagnosis_facts *f) {
    return is_front_slow(f, DIAGNOSIS_PREPROCESS, phase_share(f, PHASE_PREPROCESS));
}

static void say_hook(const struct diagnosis_facts *f, char *out) {
    say_after(out, say_both(f, out),
              ": %.0f %% of it is preprocess, p95 %.0f ms, before a token is computed: the guardrail answers slowly",
              percent(phase_share(f, PHASE_PREPROCESS)), f->now.p95[DIAGNOSIS_PREPROCESS]);
}

static bool is_text_slow(const struct diagnosis_facts *f) {
    return is_front_slow(f, DIAGNOSIS_TEXT, text_share(f));
}

static void say_text(const struct diagnosis_facts *f, char *out) {
    say_after(
        out, say_both(f, out),
        ": %.0f %% of it is text (text_queue %.0f %%, template %.0f %%, tokenize %.0f %%), p95 %.0f ms: texts are "
        "rendered and tokenized, or demanded forms compiled, slower than they come",
        percent(text_share(f)), percent(phase_share(f, PHASE_TEXT_QUEUE)), percent(phase_share(f, PHASE_TEMPLATE)),
        percent(phase_share(f, PHASE_TOKENIZE)), f->now.p95[DIAGNOSIS_TEXT]);
}

/* ---- first tokens ---- */

/* What grew is waiting for others. */
static bool is_waiting_up(const struct diagnosis_facts *f) {
    return f->is_ttft_up && f->grown[PHASE_QUEUE] + f->grown[PHASE_PREFILL_LOST] + f->grown[PHASE_PREEMPTED] >= MOST;
}

static double preempted_share(const struct diagnosis_figures *figures) {
    return share(figures->sums.n_preempted, figures->n);
}

static bool is_kv_full(const struct diagnosis_facts *f) {
    const struct diagnosis_sums *sums = &f->now.sums;
    double share_before = preempted_share(&f->before);
    if (f->now.n < MIN_REQUESTS) return false;
    if (sums->n_preempted >= MIN_EVENTS && preempted_share(&f->now) >= PREEMPTED &&
        preempted_share(&f->now) >= UP * share_before)
        return true;
    /* While somebody waits, no long request of this traffic would find room. */
    return is_waiting_up(f) && sums->n_tight >= MOST * sums->n_samples && sums->n_tight >= MIN_EVENTS &&
           sums->free_tokens / sums->n_tight < f->now.p95[DIAGNOSIS_CONTEXT];
}

static void say_kv_full(const struct diagnosis_facts *f, char *out) {
    const struct diagnosis_sums *sums = &f->now.sums;
    say_after(out, say_both(f, out),
              ": %.0f %% of it is preempted, %.0f %% queue; sequences lost their blocks %.0f times, %.0f %% of the KV "
              "blocks were held, %.1f requests waited: the KV cache is full",
              percent(phase_share(f, PHASE_PREEMPTED)), percent(phase_share(f, PHASE_QUEUE)), sums->n_preempted,
              percent(share(sums->held_share, sums->n_samples)), share(sums->waiting, sums->n_samples));
}

/* By the median request: a few long prompts that nobody has asked before lose nobody else's. */
static double hit_share(const struct diagnosis_figures *figures) {
    return figures->p50[DIAGNOSIS_HIT];
}

static double prompt_x(const struct diagnosis_facts *f) {
    return quotient(f->now.p50[DIAGNOSIS_PROMPT], f->before.p50[DIAGNOSIS_PROMPT]);
}

/* The same traffic hits less: not more of it, nor longer prompts. */
static bool is_cache_lost(const struct diagnosis_facts *f) {
    return f->has_before && f->now.n >= MIN_REQUESTS && hit_share(&f->before) >= USED_TO_HIT &&
           hit_share(&f->now) * UP <= hit_share(&f->before) && prompt_x(f) < CHANGED &&
           rate_x(f, f->now.sums.n_prompt_tokens, f->before.sums.n_prompt_tokens) < CHANGED;
}

/* What ended most searches in the cache beside the whole prompt having been found. */
static const char *miss_text(const struct diagnosis_facts *f) {
    static const char *const texts[ENGINE_STATS_N_MISSES] = {
        [PREFIX_MISS_NEW] = "nothing in the cache begins like these prompts: another salt, key or template, or text in "
                            "front that changes each time",
        [PREFIX_MISS_EDITED] = "prompts differ from cached ones early: a date or an id in front of what is shared",
        [PREFIX_MISS_EVICTED] = "what was cached has been evicted: the cache is too small for this traffic"};
    const double *n = f->now.sums.n_misses;
    int most = PREFIX_MISS_NEW;
    for (int i = PREFIX_MISS_NEW; i < ENGINE_STATS_N_MISSES; i++)
        if (texts[i] && n[i] > n[most]) most = i;
    return f->now.sums.n_misses[most] > 0 ? texts[most] : "why is not in this log (GET /debug/diagnosis has misses)";
}

static void say_cache_lost(const struct diagnosis_facts *f, char *out) {
    say_after(out, say_both(f, out),
              ": the median request finds %.0f %% of its prompt in the cache, before %.0f %%; prefill_own is %.0f %% "
              "of it: cache "
              "lost, %s",
              percent(hit_share(&f->now)), percent(hit_share(&f->before)), percent(phase_share(f, PHASE_PREFILL_OWN)),
              miss_text(f));
}

/* Few requests hold most of the work, and did not before. */
static bool has_whales(const struct diagnosis_facts *f) {
    return f->has_before && f->long_prompts.token_share >= MOST && f->long_prompts.request_share <= FEW &&
           f->long_before.token_share < MOST;
}

static bool is_interference(const struct diagnosis_facts *f) {
    double before = f->before.p95[DIAGNOSIS_TTFT];
    return f->now.n >= MIN_REQUESTS && has_whales(f) && f->short_p95 >= UP * before && f->short_p95 - before >= UP_MS &&
           f->short_wait_p95 >= MOST * f->short_p95;
}

static void say_interference(const struct diagnosis_facts *f, char *out) {
    char name[DIAGNOSIS_WINDOW_KEY_BYTES + 8];
    int n = snprintf(out, DIAGNOSIS_RULES_MAX_TEXT, "TTFT p95 of prompts below %d tokens %.0f ms (x%.1f)",
                     f->long_tokens, f->short_p95, quotient(f->short_p95, f->before.p95[DIAGNOSIS_TTFT]));
    say_after(out, n,
              ", %.0f %% of it waiting for others (all: queue %.0f %%, prefill_lost %.0f %%); %.0f %% of the requests, "
              "most from %s, hold %.0f %% of the prefill tokens: interference by long prompts",
              percent(share(f->short_wait_p95, f->short_p95)), percent(phase_share(f, PHASE_QUEUE)),
              percent(phase_share(f, PHASE_PREFILL_LOST)), percent(f->long_prompts.request_share),
              key_name(f, f->long_prompts.key, name), percent(f->long_prompts.token_share));
}

static bool is_storm(const struct diagnosis_facts *f) {
    return is_waiting_up(f) && f->top_share >= MOST && f->top_share >= CHANGED * f->top_share_before && f->top_x >= UP;
}

static void say_storm(const struct diagnosis_facts *f, char *out) {
    char name[DIAGNOSIS_WINDOW_KEY_BYTES + 8];
    say_after(out, say_both(f, out),
              ": %.0f %% of it is queue, %.0f %% prefill_lost; %s sent %.0f %% of the prefill tokens (before %.0f %%), "
              "%.0f a second: prefill storm",
              percent(phase_share(f, PHASE_QUEUE)), percent(phase_share(f, PHASE_PREFILL_LOST)),
              key_name(f, f->top_key, name), percent(f->top_share), percent(f->top_share_before),
              f->now.sums.key_tokens[f->top_key] / f->now.seconds);
}

static bool are_prompts_longer(const struct diagnosis_facts *f) {
    return f->is_ttft_up && prompt_x(f) >= CHANGED && f->grown[PHASE_PREFILL_OWN] >= MOST;
}

static void say_prompts(const struct diagnosis_facts *f, char *out) {
    say_after(out, say_both(f, out),
              ": %.0f %% of it is prefill_own, queue only %.0f %%; the median prompt has %.0f tokens (x%.1f): prompts "
              "became longer",
              percent(phase_share(f, PHASE_PREFILL_OWN)), percent(phase_share(f, PHASE_QUEUE)),
              f->now.p50[DIAGNOSIS_PROMPT], prompt_x(f));
}

/* Refused because others are there. */
static double refused_of(const struct diagnosis_sums *sums) {
    static const enum admission_reason reasons[] = {ADMISSION_QUEUE, ADMISSION_TENANT_QUEUE, ADMISSION_WAIT,
                                                    ADMISSION_DEADLINE, ADMISSION_PROMISE};
    double n = 0;
    for (size_t i = 0; i < sizeof reasons / sizeof reasons[0]; i++) n += sums->n_refused_by[reasons[i]];
    return n;
}

static bool is_overload(const struct diagnosis_facts *f) {
    double n_refused = refused_of(&f->now.sums);
    if (is_waiting_up(f)) return true;
    return n_refused >= MIN_EVENTS && share(n_refused, f->now.n + n_refused) >= REFUSED;
}

static void say_overload(const struct diagnosis_facts *f, char *out) {
    const struct diagnosis_sums *now = &f->now.sums, *before = &f->before.sums;
    double n = f->now.n + refused_of(now), n_before = f->before.n + refused_of(before);
    int n_said = say_both(f, out);
    say_after(out, n_said,
              ": %.0f %% of it is queue; %.1f requests a second (x%.1f) with %.0f prompt tokens a second (x%.1f), "
              "%.1f waiting, %.0f refused: more comes than is computed",
              percent(phase_share(f, PHASE_QUEUE)), n / f->now.seconds, f->has_before ? rate_x(f, n, n_before) : 1,
              now->n_prompt_tokens / f->now.seconds,
              f->has_before ? rate_x(f, now->n_prompt_tokens, before->n_prompt_tokens) : 1,
              share(now->waiting, now->n_samples), refused_of(now));
}

/* ---- decode ---- */

static bool is_decode_slow(const struct diagnosis_facts *f) {
    return f->is_itl_up; /* and no rule above explains it by prompts */
}

static double per_sample(const struct diagnosis_figures *figures, double sum) {
    return share(sum, figures->sums.n_samples);
}

static double prefill_row_share(const struct diagnosis_figures *figures) {
    return share(figures->sums.n_prefill_rows, figures->sums.n_rows);
}

static void say_decode(const struct diagnosis_facts *f, char *out) {
    double running = per_sample(&f->now, f->now.sums.running), before = per_sample(&f->before, f->before.sums.running);
    double context_x = quotient(f->now.p50[DIAGNOSIS_CONTEXT], f->before.p50[DIAGNOSIS_CONTEXT]);
    int n = snprintf(out, DIAGNOSIS_RULES_MAX_TEXT,
                     "inter-token time p50 %.1f ms (x%.1f), TTFT p95 x%.1f: ", f->now.p50[DIAGNOSIS_ITL], f->itl_x,
                     f->ttft_x);
    /* More at a time alone proves nothing: who decodes slowly stays longer. */
    if (f->now.sums.n_samples > 0 && running >= CHANGED * before &&
        rate_x(f, f->now.sums.n_output_tokens, f->before.sums.n_output_tokens) >= CHANGED)
        say_after(out, n, "%.1f requests run at a time, before %.1f: the batch became larger", running, before);
    else if (context_x >= CHANGED)
        say_after(out, n, "the median context has %.0f tokens (x%.1f): each token reads more KV",
                  f->now.p50[DIAGNOSIS_CONTEXT], context_x);
    else if (f->now.sums.n_rows > 0 && prefill_row_share(&f->now) >= CHANGED * prefill_row_share(&f->before))
        say_after(out, n, "%.0f %% of the rows are prompts', before %.0f %%: prompts are computed beside answers",
                  percent(prefill_row_share(&f->now)), percent(prefill_row_share(&f->before)));
    else
        say_after(out, n, "batch and contexts as before: others use this machine's cores or memory");
}

/* ---- readers ---- */

static double blocked_share(const struct diagnosis_sums *sums) {
    return share(sums->blocked_ms, sums->blocked_ms + sums->decode_ms);
}

static bool are_readers_slow(const struct diagnosis_facts *f) {
    const struct diagnosis_sums *sums = &f->now.sums;
    return sums->n_blocked >= MIN_EVENTS && sums->n_blocked >= BLOCKED_MANY * sums->n_run &&
           blocked_share(sums) >= BLOCKED;
}

static void say_readers(const struct diagnosis_facts *f, char *out) {
    const struct diagnosis_sums *sums = &f->now.sums;
    say_after(out, 0,
              "%.0f %% of the time after first tokens is blocked, not decode: %.0f of %d clients did not read what was "
              "sent to them: slow readers",
              percent(blocked_share(sums)), sums->n_blocked, f->now.n);
}

/* ---- promises ---- */

static double late_share(const struct diagnosis_sums *sums) {
    return share(sums->n_late, sums->n_promised);
}

static double own_x(const struct diagnosis_facts *f) {
    const struct diagnosis_sums *now = &f->now.sums, *before = &f->before.sums;
    return quotient(share(now->prefill_own_ms, now->n_computed_tokens),
                    share(before->prefill_own_ms, before->n_computed_tokens));
}

static bool are_promises_late(const struct diagnosis_facts *f) {
    const struct diagnosis_sums *sums = &f->now.sums;
    return f->has_before && sums->n_promised >= MIN_REQUESTS && late_share(sums) >= LATE &&
           late_share(sums) >= UP * late_share(&f->before.sums);
}

static void say_promises(const struct diagnosis_facts *f, char *out) {
    const struct diagnosis_sums *sums = &f->now.sums;
    int n =
        snprintf(out, DIAGNOSIS_RULES_MAX_TEXT,
                 "%.0f %% of the first tokens came later than 1.25 times what was promised", percent(late_share(sums)));
    if (f->has_before && own_x(f) >= COST_CHANGED)
        say_after(out, n, "; a prompt token takes x%.1f of prefill_own: others use this machine's cores", own_x(f));
    else
        say_after(out, n, "; a prompt token costs what it did: the cost model does not fit this load");
}

static double missed_share(const struct diagnosis_figures *figures) {
    return share(figures->sums.n_missed_slo, figures->sums.n_promised_slo);
}

static bool is_slo_burning(const struct diagnosis_facts *f) {
    return f->has_before && f->now.sums.n_promised_slo >= MIN_REQUESTS && missed_share(&f->now) >= MISSED &&
           missed_share(&f->now) >= UP * missed_share(&f->before) &&
           rate_x(f, f->now.sums.n_output_tokens, f->before.sums.n_output_tokens) >= 1;
}

static void say_slo(const struct diagnosis_facts *f, char *out) {
    double tokens = f->now.sums.n_output_tokens;
    say_after(out, say_both(f, out),
              ": %.0f %% of the requests miss their TTFT SLO (before %.0f %%), while answers have %.0f tokens a second "
              "(x%.1f): throughput is up and the SLO burns",
              percent(missed_share(&f->now)), percent(missed_share(&f->before)), tokens / f->now.seconds,
              rate_x(f, tokens, f->before.sums.n_output_tokens));
}

const struct diagnosis_rule *diagnosis_rules_table(int *out_n) {
    static const struct diagnosis_rule rules[] = {
        {"slow_upload", DIAGNOSIS_FRONT, SOON, is_upload_slow, say_upload,
         "look at the network, or lower --header-timeout"},
        {"slow_hook", DIAGNOSIS_FRONT, SOON, is_hook_slow, say_hook,
         "look at kvick_pre_hook_*; make the guardrail faster or lower --pre-hook-timeout"},
        {"slow_text", DIAGNOSIS_FRONT, SOON, is_text_slow, say_text,
         "demand smaller forms, and the same ones again; send shorter texts, or token ids"},
        {"kv_full", DIAGNOSIS_STEPS, SOON, is_kv_full, say_kv_full,
         "lower --max-num-seqs or --max-model-len, or give --kv-cache-memory-bytes more; kvick plan says how much"},
        {"cache_lost", DIAGNOSIS_STEPS, SOON, is_cache_lost, say_cache_lost,
         "put what is shared in front, equal to the byte, and what changes behind it"},
        {"interference", DIAGNOSIS_STEPS, SOON, is_interference, say_interference,
         "send long prompts as batch (service_tier, or class of the key), cap --max-prompt-tokens interactive=N, and "
         "leave --chunk above 0"},
        {"prefill_storm", DIAGNOSIS_STEPS, SOON, is_storm, say_storm,
         "give that key prefill-ms-per-minute, a smaller weight or class batch in --keys"},
        {"long_prompts", DIAGNOSIS_STEPS, SOON, are_prompts_longer, say_prompts,
         "cap --max-prompt-tokens, shorten what is retrieved, or warm what is shared (POST /v1/cache/warm)"},
        {"overload", DIAGNOSIS_STEPS, LATER, is_overload, say_overload,
         "send less at once, move work to batch, or add a server; retry after Retry-After"},
        {"late_promises", DIAGNOSIS_STEPS, LATER, are_promises_late, say_promises,
         "keep other work off these cores; costs are measured again while the server is idle"},
        {"slow_decode", DIAGNOSIS_STEPS, LATER, is_decode_slow, say_decode,
         "lower --max-num-seqs or --target-itl-ms, cap contexts; kvick plan shows the trade"},
        {"slow_readers", DIAGNOSIS_READERS, SOON, are_readers_slow, say_readers,
         "nothing to do here: clients or the proxy between must read"},
        {"slo_burn", DIAGNOSIS_PROMISES, SOON, is_slo_burning, say_slo,
         "lower --max-num-seqs, or split interactive from batch: tokens a second hide what first tokens pay"},
    };
    *out_n = (int)(sizeof rules / sizeof rules[0]);
    return rules;
}
