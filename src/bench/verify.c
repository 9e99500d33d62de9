#include "bench/verify.h"

#include <string.h>

#include "base/cpu.h"
#include "base/mem.h"
#include "base/rng.h"
#include "engine/engine_client.h"

#define N_ANSWER 20
#define N_TAIL 9 /* logit rows of a case */
#define SEED 20

/* Who takes the blocks of the preempted: interactive requests that come while the cases, of the class batch, wait for
 * their reader in the middle of their answers. */
#define N_CROWD 8
#define CROWD_PROMPT 4
#define CROWD_ANSWER 60
#define CROWD_BLOCK_TOKENS 16
#define SPARE_BLOCKS 8 /* beside those of the cases: some of the crowd can start, but not grow */
#define N_READ (N_ANSWER / 2)

static const int prompt_tokens[] = {1, 16, 33, 130, 700};
static const int chunks[] = {7, 16, 512, 0};

#define N_CASES ((int)(sizeof prompt_tokens / sizeof prompt_tokens[0]))
#define N_CHUNKS ((int)(sizeof chunks / sizeof chunks[0]))

/* What a run gave. */
struct answers {
    uint32_t ids[N_CASES][N_ANSWER];
    float *logits; /* [N_CASES][N_TAIL][n_vocab] */
};

struct verify {
    const struct engine_options *base;
    struct verify_report *report;
    struct status_note *note;
    int n_prompt[N_CASES];
    int max_context, n_vocab;
    struct engine *engine;
    struct answers first, now; /* of the first run, of the one at work */
};

const char *verify_company_name(enum verify_company company) {
    static const char *const names[] = {
        [VERIFY_ALONE] = "alone", [VERIFY_BATCHED] = "batched", [VERIFY_PREEMPTED] = "preempted"};
    return names[company];
}

/* ---- one run ---- */

static size_t case_floats(const struct verify *verify) {
    return (size_t)N_TAIL * (size_t)verify->n_vocab;
}

static uint32_t fixed_id(const struct verify *verify, int case_idx, int position) {
    return (uint32_t)(rng_uniform(SEED, (uint32_t)case_idx, (uint32_t)position) * verify->n_vocab);
}

/* The first turn of a case, or its follow-up. */
static struct request *make_request(struct verify *verify, int case_idx, bool is_follow_up, bool has_cache) {
    int n_prompt = verify->n_prompt[case_idx];
    int n = is_follow_up ? n_prompt + N_ANSWER + N_TAIL : n_prompt;
    uint32_t *tokens = mem_alloc_array((size_t)n, sizeof *tokens);
    if (!tokens) return NULL;
    for (int i = 0; i < n; i++) tokens[i] = fixed_id(verify, case_idx, i);
    if (is_follow_up) memcpy(tokens + n_prompt, verify->now.ids[case_idx], sizeof verify->now.ids[case_idx]);
    struct request *request = engine_client_make(tokens, n, is_follow_up ? 0 : N_ANSWER);
    mem_free(tokens);
    if (!request) return NULL;
    request->has_cache = has_cache;
    if (is_follow_up) {
        request->logits = verify->now.logits + (size_t)case_idx * case_floats(verify);
        request->logits_from = n - N_TAIL;
    }
    return request;
}

/* Waits until n requests are home, or, with n_tokens >= 0, so many tokens have been told. */
static enum status gather(struct verify *verify, int n, int n_tokens) {
    struct event event;
    enum status status = STATUS_OK;
    while (n > 0 && n_tokens != 0) {
        if (!engine_client_wait(verify->engine, -1, &event)) continue;
        n_tokens -= event.kind == EVENT_TOKEN;
        if (event.kind == EVENT_REFUSED) {
            status = event.status;
            *verify->note = event.request->note;
        }
        n -= event.kind == EVENT_REFUSED || event.kind == EVENT_FINISHED;
    }
    return status;
}

/* Requests of other prompts, until all are home. */
static enum status let_crowd_pass(struct verify *verify) {
    uint32_t tokens[CROWD_PROMPT];
    struct request *crowd[N_CROWD] = {NULL};
    enum status status = STATUS_OK;
    int n_sent = 0;
    for (int i = 0; i < N_CROWD && !status; i++) {
        for (int k = 0; k < CROWD_PROMPT; k++) tokens[k] = fixed_id(verify, N_CASES + i, k);
        crowd[i] = engine_client_make(tokens, CROWD_PROMPT, CROWD_ANSWER);
        status = crowd[i] ? engine_client_submit(verify->engine, crowd[i]) : STATUS_NOMEM;
        n_sent += !status;
    }
    enum status answered = gather(verify, n_sent, -1);
    for (int i = 0; i < N_CROWD; i++) engine_client_free(&crowd[i]);
    return status ? status : answered;
}

/* The cases are in the middle of their answers: others come, and the cases go on when those are through. */
static enum status preempt_cases(struct verify *verify, struct request *const requests[N_CASES]) {
    enum status status = gather(verify, N_CASES, N_CASES * N_READ);
    if (!status) status = let_crowd_pass(verify);
    for (int i = 0; i < N_CASES; i++) engine_client_acknowledge(requests[i], N_ANSWER);
    return status;
}

static bool must_preempt(const struct verify_run *run, bool is_follow_up) {
    return run->company == VERIFY_PREEMPTED && !is_follow_up;
}

/* Sends the cases and waits for them. */
static enum status run_cases(struct verify *verify, const struct verify_run *run, struct request *requests[N_CASES],
                             bool is_follow_up) {
    enum status status = STATUS_OK;
    int n_away = 0;
    for (int i = 0; i < N_CASES && !status; i++) {
        /* Who came last gives way first: the short ones, so that it is several. */
        struct request **request = &requests[run->company == VERIFY_PREEMPTED ? N_CASES - 1 - i : i];
        *request = make_request(verify, (int)(request - requests), is_follow_up, run->is_cached);
        if (*request && must_preempt(run, is_follow_up)) {
            (*request)->class_ = REQUEST_BATCH;
            (*request)->max_unread = N_READ;
        }
        status = *request ? engine_client_submit(verify->engine, *request) : STATUS_NOMEM;
        n_away += !status;
        if (run->company != VERIFY_ALONE || status) continue;
        status = gather(verify, 1, -1);
        n_away = 0;
    }
    if (!status && must_preempt(run, is_follow_up)) status = preempt_cases(verify, requests);
    enum status answered = gather(verify, n_away, -1);
    return status ? status : answered;
}

/* What must have happened on the way, so that the run proves anything. */
static enum status check_way(const struct verify *verify, const struct verify_run *run, bool is_follow_up,
                             struct request *const requests[N_CASES]) {
    int n_preemptions = 0;
    for (int i = 0; i < N_CASES; i++) {
        n_preemptions += requests[i]->stats.n_preemptions;
        if (is_follow_up && run->is_cached && requests[i]->stats.n_cached_tokens == 0)
            return status_fail(verify->note, STATUS_LIMIT, "a prompt of %d tokens should hit the cache and did not",
                               requests[i]->n_prompt);
    }
    if (must_preempt(run, is_follow_up) && n_preemptions == 0)
        return status_fail(verify->note, STATUS_LIMIT, "nobody was preempted in a pool that is too small for all");
    return STATUS_OK;
}

static enum status take_turn(struct verify *verify, const struct verify_run *run, bool is_follow_up) {
    struct request *requests[N_CASES] = {NULL};
    enum status status = run_cases(verify, run, requests, is_follow_up);
    if (!status) status = check_way(verify, run, is_follow_up, requests);
    for (int i = 0; i < N_CASES; i++) {
        if (!status && !is_follow_up)
            memcpy(verify->now.ids[i], requests[i]->tokens + requests[i]->n_prompt, sizeof verify->now.ids[i]);
        engine_client_free(&requests[i]);
    }
    return status;
}

static void digest_answers(const struct verify *verify, struct verify_run *run) {
    size_t n_bytes = (size_t)N_CASES * case_floats(verify) * sizeof(float);
    hash_sha256(verify->now.ids, sizeof verify->now.ids, verify->now.logits, n_bytes, run->digest);
}

/* The first id or logit in which the run differs from the first run. */
static void find_difference(const struct verify *verify, int run_idx, struct verify_difference *out) {
    size_t n_vocab = (size_t)verify->n_vocab;
    for (int c = 0; c < N_CASES; c++) {
        *out = (struct verify_difference){.run_b = run_idx, .case_idx = c, .n_prompt = verify->n_prompt[c]};
        for (int i = 0; i < N_ANSWER; i++) {
            out->token_a = verify->first.ids[c][i];
            out->token_b = verify->now.ids[c][i];
            out->position = verify->n_prompt[c] + i;
            out->is_token = true;
            if (out->token_a != out->token_b) return;
        }
        out->is_token = false;
        for (size_t i = 0; i < case_floats(verify); i++) {
            out->logit_a = verify->first.logits[(size_t)c * case_floats(verify) + i];
            out->logit_b = verify->now.logits[(size_t)c * case_floats(verify) + i];
            out->position = verify->n_prompt[c] + N_ANSWER + (int)(i / n_vocab);
            out->column = (int)(i % n_vocab);
            if (memcmp(&out->logit_a, &out->logit_b, sizeof(float)) != 0) return;
        }
    }
}

static void enter_run(struct verify *verify, const struct verify_run *run) {
    struct verify_report *report = verify->report;
    int n = report->n_runs++;
    report->runs[n] = *run;
    for (int i = 0; i < n; i++)
        if (memcmp(report->runs[i].digest, run->digest, sizeof run->digest) == 0) return;
    report->n_distinct++;
    if (report->n_distinct == 2) find_difference(verify, n, &report->difference);
    if (n == 0) {
        memcpy(verify->first.ids, verify->now.ids, sizeof verify->now.ids);
        memcpy(verify->first.logits, verify->now.logits, (size_t)N_CASES * case_floats(verify) * sizeof(float));
    }
}

static enum status do_run(struct verify *verify, struct verify_run *run) {
    memset(verify->now.ids, 0, sizeof verify->now.ids);
    memset(verify->now.logits, 0, (size_t)N_CASES * case_floats(verify) * sizeof(float));
    enum status status = take_turn(verify, run, false);
    if (!status) status = take_turn(verify, run, true);
    if (status) return status;
    digest_answers(verify, run);
    enter_run(verify, run);
    return STATUS_OK;
}

/* ---- all runs ---- */

static enum status reserve(struct verify *verify) {
    if (verify->now.logits) return STATUS_OK;
    verify->n_vocab = engine_model(verify->engine)->n_vocab;
    size_t n = (size_t)N_CASES * case_floats(verify);
    verify->first.logits = mem_alloc_array(n, sizeof(float));
    verify->now.logits = mem_alloc_array(n, sizeof(float));
    if (verify->first.logits && verify->now.logits) return STATUS_OK;
    return status_fail(verify->note, STATUS_NOMEM, "no memory for the logits of %d rows", N_CASES * N_TAIL);
}

static struct engine_options options_of(const struct verify *verify, int chunk, int n_threads, bool is_small) {
    struct engine_options options = *verify->base;
    options.n_threads = n_threads;
    options.max_context = verify->max_context;
    options.max_chunk = chunk && chunk < verify->max_context ? chunk : verify->max_context;
    options.max_sequences = N_CASES + (is_small ? N_CROWD : 0);
    options.max_logit_rows = N_CASES * N_TAIL + (is_small ? N_CROWD : 0);
    options.kv_tokens = (verify->max_context + options.block_tokens) * N_CASES;
    options.has_prefix_cache = true;
    if (!is_small) return options;
    options.block_tokens = CROWD_BLOCK_TOKENS;
    options.kv_tokens = SPARE_BLOCKS * CROWD_BLOCK_TOKENS;
    for (int i = 0; i < N_CASES; i++)
        options.kv_tokens +=
            (verify->n_prompt[i] + N_ANSWER + CROWD_BLOCK_TOKENS - 1) / CROWD_BLOCK_TOKENS * CROWD_BLOCK_TOKENS;
    return options;
}

/* All runs of an engine: those that preempt need a small pool. */
static enum status run_engine(struct verify *verify, int chunk, int n_threads, bool is_small) {
    struct engine_options options = options_of(verify, chunk, n_threads, is_small);
    enum status status = engine_create(&verify->engine, &options, verify->note);
    if (!status) status = reserve(verify);
    for (int cached = 0; cached < 2; cached++)
        for (int company = 0; company < VERIFY_N_COMPANIES && !status; company++) {
            struct verify_run run = {chunk, n_threads, cached, (enum verify_company)company, {0}};
            if ((company == VERIFY_PREEMPTED) == is_small) status = do_run(verify, &run);
        }
    engine_destroy(&verify->engine);
    return status;
}

static enum status choose_prompts(struct verify *verify, int model_context) {
    int n_rest = N_ANSWER + N_TAIL;
    for (int i = 0; i < N_CASES; i++) {
        int max = model_context - n_rest;
        if (max < 1)
            return status_fail(verify->note, STATUS_LIMIT, "the model's context of %d holds no prompt and %d more",
                               model_context, n_rest);
        verify->n_prompt[i] = prompt_tokens[i] < max ? prompt_tokens[i] : max;
        if (verify->n_prompt[i] + n_rest > verify->max_context) verify->max_context = verify->n_prompt[i] + n_rest;
    }
    return STATUS_OK;
}

enum status verify_model(const struct engine_options *base, int model_context, FILE *progress,
                         struct verify_report *report, struct status_note *note) {
    struct verify verify = {.base = base, .report = report, .note = note};
    int n_usable = cpu_n_usable();
    const int threads[] = {1, n_usable > 1 ? n_usable : 2};
    *report = (struct verify_report){0};
    enum status status = choose_prompts(&verify, model_context);
    for (int c = 0; c < N_CHUNKS; c++)
        for (int t = 0; t < 2 && !status; t++) {
            status = run_engine(&verify, chunks[c], threads[t], false);
            if (!status) status = run_engine(&verify, chunks[c], threads[t], true);
            if (progress && !status)
                fprintf(progress, "chunk %d, threads %d: %d distinct in %d\n", chunks[c], threads[t],
                        report->n_distinct, report->n_runs);
        }
    mem_free(verify.first.logits);
    mem_free(verify.now.logits);
    return status;
}
