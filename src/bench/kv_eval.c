#include "bench/kv_eval.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "tokenizer/detokenizer.h"

#define MAX_LOGIT_ROWS 64 /* of a request */
#define MAX_PROMPT_BYTES 65536
#define MAX_ANSWER_BYTES 4096
#define TEXT_SEED 7

/* What each text begins with. */
static const char *const openings[KV_EVAL_N_TEXTS] = {"The", "How to", "Question:", "In the year"};

enum status kv_eval_init(struct kv_eval *eval, int n_vocab) {
    size_t row_bytes = (size_t)n_vocab * sizeof(float);
    size_t n_rows = KV_EVAL_MAX_BYTES / row_bytes / KV_EVAL_N_TEXTS;
    *eval = (struct kv_eval){.n_vocab = n_vocab};
    eval->n_rows = n_rows < KV_EVAL_TEXT_TOKENS / 2 ? (int)n_rows : KV_EVAL_TEXT_TOKENS / 2;
    if (eval->n_rows < 1) eval->n_rows = 1;
    eval->logits = mem_map_pages((size_t)KV_EVAL_N_TEXTS * (size_t)eval->n_rows * row_bytes);
    return eval->logits ? STATUS_OK : STATUS_NOMEM;
}

void kv_eval_deinit(struct kv_eval *eval) {
    if (!eval->logits) return;
    mem_unmap_pages(eval->logits,
                    (size_t)KV_EVAL_N_TEXTS * (size_t)eval->n_rows * (size_t)eval->n_vocab * sizeof(float));
    eval->logits = NULL;
}

/* ---- requests ---- */

static enum status run(struct engine *engine, struct request *request, struct status_note *note) {
    enum status status = engine_client_run(engine, request);
    if (status) *note = request->note;
    return status;
}

static enum status encode(const struct tokenizer *tokenizer, const char *text, size_t n_bytes, struct id_list *out,
                          struct status_note *note) {
    unsigned flags = tokenizer_adds_bos(tokenizer) ? TOKENIZER_ADD_BOS : 0;
    return tokenizer_encode(tokenizer, text, n_bytes, flags, out, note);
}

/* An answer is one line: where line ends are tokens of their own it need not be waited for longer. */
static enum status stop_at_line_ends(const struct tokenizer *tokenizer, struct request *request,
                                     struct status_note *note) {
    static const char *const ends[] = {"\n", "\n\n"};
    enum status status = STATUS_OK;
    for (int i = 0; i < 2 && !status; i++) {
        struct id_list ids;
        id_list_init(&ids, 8);
        status = tokenizer_encode(tokenizer, ends[i], strlen(ends[i]), 0, &ids, note);
        if (!status && ids.n_ids == 1) request->stop_tokens[request->n_stop_tokens++] = (uint32_t)ids.ids[0];
        id_list_deinit(&ids);
    }
    return status;
}

/* The answer's text behind a prompt. */
static enum status answer(struct engine *engine, const struct tokenizer *tokenizer, const struct id_list *prompt,
                          int max_new, struct str *out, struct status_note *note) {
    struct detokenizer detokenizer;
    struct request *request = engine_client_make((const uint32_t *)prompt->ids, (int)prompt->n_ids, max_new);
    if (!request) return status_fail(note, STATUS_NOMEM, "no memory for %zu tokens", prompt->n_ids);
    int n_ends;
    const int32_t *ends = tokenizer_end_ids(tokenizer, &n_ends);
    request->sampling.top_p = 1;
    enum status status = stop_at_line_ends(tokenizer, request, note);
    for (int i = 0; i < n_ends && request->n_stop_tokens < REQUEST_MAX_STOP_TOKENS; i++)
        request->stop_tokens[request->n_stop_tokens++] = (uint32_t)ends[i];
    if (!status) status = run(engine, request, note);
    detokenizer_init(&detokenizer, tokenizer, 0);
    const uint32_t *ids = engine_client_answer(request, 0);
    for (int i = 0; i < request->choices[0].n_new_tokens && !status; i++)
        if (!tokenizer_is_end_of_generation(tokenizer, (int32_t)ids[i]))
            status = detokenizer_push(&detokenizer, (int32_t)ids[i], out);
    if (!status) status = detokenizer_finish(&detokenizer, out);
    engine_client_free(&request);
    return status;
}

/* ---- texts ---- */

/* Text text_idx as the model writes it, at temperature 1 by a fixed seed: what it is sure and unsure of by turns. */
static enum status write_text(struct kv_eval *eval, struct engine *engine, const struct tokenizer *tokenizer,
                              int text_idx, struct status_note *note) {
    struct id_list opening;
    struct request *request = NULL;
    id_list_init(&opening, KV_EVAL_TEXT_TOKENS);
    enum status status = encode(tokenizer, openings[text_idx], strlen(openings[text_idx]), &opening, note);
    int n_new = KV_EVAL_TEXT_TOKENS - (int)opening.n_ids;
    if (!status && !(request = engine_client_make((const uint32_t *)opening.ids, (int)opening.n_ids, n_new)))
        status = status_fail(note, STATUS_NOMEM, "no memory for %d tokens", KV_EVAL_TEXT_TOKENS);
    if (!status) {
        request->sampling = (struct sampling){.temperature = 1, .top_p = 1, .seed = TEXT_SEED};
        request->sampling.choice = (uint32_t)text_idx;
        status = run(engine, request, note);
    }
    if (!status) memcpy(eval->texts[text_idx], request->tokens, sizeof eval->texts[text_idx]);
    engine_client_free(&request);
    id_list_deinit(&opening);
    return status;
}

static double log_norm(const float *row, int n) {
    double max = (double)row[0], sum = 0;
    for (int i = 1; i < n; i++) max = fmax(max, (double)row[i]);
    for (int i = 0; i < n; i++) sum += exp((double)row[i] - max);
    return max + log(sum);
}

/* KL(p || q) of two rows of logits. */
static double divergence(const float *p, const float *q, int n) {
    double norm_p = log_norm(p, n), norm_q = log_norm(q, n), sum = 0;
    for (int i = 0; i < n; i++) {
        double log_p = (double)p[i] - norm_p;
        sum += exp(log_p) * (log_p - ((double)q[i] - norm_q));
    }
    return sum;
}

/* Logits of positions [from, from + n_rows) of a text. */
static enum status read_rows(struct kv_eval *eval, struct engine *engine, int text_idx, int from, int n_rows,
                             float *out, struct status_note *note) {
    struct request *request = engine_client_make(eval->texts[text_idx], from + n_rows, 0);
    if (!request) return status_fail(note, STATUS_NOMEM, "no memory for %d tokens", from + n_rows);
    request->logits = out;
    request->logits_from = from;
    enum status status = run(engine, request, note);
    engine_client_free(&request);
    return status;
}

/* The last rows of all texts, the last of a text telling nothing of a next token. got: room for MAX_LOGIT_ROWS, or NULL
 * to keep them as those of float KV. */
static enum status read_texts(struct kv_eval *eval, struct engine *engine, float *got, struct kv_eval_run *run_of,
                              struct status_note *note) {
    double nll = 0, kl = 0;
    for (int t = 0; t < KV_EVAL_N_TEXTS; t++) {
        for (int row = 0; row < eval->n_rows; row += MAX_LOGIT_ROWS) {
            int n = eval->n_rows - row < MAX_LOGIT_ROWS ? eval->n_rows - row : MAX_LOGIT_ROWS;
            int from = KV_EVAL_TEXT_TOKENS - 1 - eval->n_rows + row;
            float *kept = eval->logits + ((size_t)t * (size_t)eval->n_rows + (size_t)row) * (size_t)eval->n_vocab;
            float *rows = got ? got : kept;
            enum status status = read_rows(eval, engine, t, from, n, rows, note);
            if (status) return status;
            for (int i = 0; i < n; i++) {
                const float *x = rows + (size_t)i * (size_t)eval->n_vocab;
                nll += log_norm(x, eval->n_vocab) - (double)x[eval->texts[t][from + i + 1]];
                if (got) kl += divergence(kept + (size_t)i * (size_t)eval->n_vocab, x, eval->n_vocab);
            }
        }
    }
    run_of->nll = nll / (KV_EVAL_N_TEXTS * eval->n_rows);
    if (got) eval->mean_kl = kl / (KV_EVAL_N_TEXTS * eval->n_rows);
    return STATUS_OK;
}

/* ---- tasks ---- */

static enum status solve(struct engine *engine, const struct tokenizer *tokenizer, enum kv_task task, int case_idx,
                         struct kv_eval_run *out, struct status_note *note) {
    struct str text, reply;
    struct id_list ids;
    str_init(&text, MAX_PROMPT_BYTES);
    str_init(&reply, MAX_ANSWER_BYTES);
    id_list_init(&ids, MAX_PROMPT_BYTES);
    enum status status = kv_tasks_prompt(task, case_idx, &text);
    if (!status) status = encode(tokenizer, text.ptr, text.n_bytes, &ids, note);
    bool is_run = !status && (int)ids.n_ids + kv_tasks_max_new(task) <= engine_max_context(engine);
    if (is_run) status = answer(engine, tokenizer, &ids, kv_tasks_max_new(task), &reply, note);
    if (is_run && !status) {
        out->n_cases[task]++;
        out->is_right[task][case_idx] = reply.ptr && kv_tasks_is_right(task, case_idx, reply.ptr);
    }
    id_list_deinit(&ids);
    str_deinit(&reply);
    str_deinit(&text);
    return status;
}

static enum status solve_all(struct engine *engine, const struct tokenizer *tokenizer, struct kv_eval_run *out,
                             struct status_note *note) {
    enum status status = STATUS_OK;
    for (int task = 0; task < KV_N_TASKS; task++)
        for (int i = 0; i < kv_tasks_n_cases((enum kv_task)task) && !status; i++)
            status = solve(engine, tokenizer, (enum kv_task)task, i, out, note);
    return status;
}

enum status kv_eval_reference(struct kv_eval *eval, struct engine *engine, const struct tokenizer *tokenizer,
                              struct status_note *note) {
    enum status status = STATUS_OK;
    for (int t = 0; t < KV_EVAL_N_TEXTS && !status; t++) status = write_text(eval, engine, tokenizer, t, note);
    if (!status) status = read_texts(eval, engine, NULL, &eval->by_float, note);
    return status ? status : solve_all(engine, tokenizer, &eval->by_float, note);
}

enum status kv_eval_compare(struct kv_eval *eval, struct engine *engine, const struct tokenizer *tokenizer,
                            struct status_note *note) {
    size_t n_bytes = (size_t)MAX_LOGIT_ROWS * (size_t)eval->n_vocab * sizeof(float);
    float *got = mem_map_pages(n_bytes);
    if (!got) return status_fail(note, STATUS_NOMEM, "no memory for logits");
    enum status status = read_texts(eval, engine, got, &eval->by_type, note);
    mem_unmap_pages(got, n_bytes);
    return status ? status : solve_all(engine, tokenizer, &eval->by_type, note);
}

/* ---- verdict ---- */

/* Cases that one type solves and the other does not go against one another: what counts is what is lost. */
static bool is_loss_within(const struct kv_eval_task_result *result, double share) {
    int n_lost = result->n_float - result->n_type;
    return n_lost <= 1 || n_lost <= share * result->n_cases;
}

static void judge_task(const struct kv_eval *eval, enum kv_task task, struct kv_eval_result *out) {
    struct kv_eval_task_result *result = &out->tasks[task];
    *result = (struct kv_eval_task_result){.n_cases = eval->by_float.n_cases[task]};
    for (int i = 0; i < result->n_cases; i++) {
        result->n_float += eval->by_float.is_right[task][i];
        result->n_type += eval->by_type.is_right[task][i];
    }
    result->is_counted = result->n_cases > 0 && 2 * result->n_float >= result->n_cases;
    result->is_good = !result->is_counted || is_loss_within(result, KV_EVAL_MAX_LOSS);
    if (!result->is_counted) return;
    out->all.n_cases += result->n_cases;
    out->all.n_float += result->n_float;
    out->all.n_type += result->n_type;
}

void kv_eval_judge(const struct kv_eval *eval, struct kv_eval_result *out) {
    *out = (struct kv_eval_result){.ppl_float = exp(eval->by_float.nll),
                                   .ppl_type = exp(eval->by_type.nll),
                                   .ppl_ratio = exp(eval->by_type.nll - eval->by_float.nll),
                                   .mean_kl = eval->mean_kl};
    for (int task = 0; task < KV_N_TASKS; task++) judge_task(eval, (enum kv_task)task, out);
    out->all.is_counted = out->all.n_cases > 0;
    out->all.is_good = is_loss_within(&out->all, KV_EVAL_MAX_ALL_LOSS);
    out->is_ppl_good = out->ppl_ratio <= KV_EVAL_MAX_PPL_RATIO; /* false for NaN */
    out->is_kl_good = out->mean_kl <= KV_EVAL_MAX_KL;
    out->is_passed = out->is_ppl_good && out->is_kl_good && out->all.is_good;
    for (int task = 0; task < KV_N_TASKS; task++) out->is_passed &= out->tasks[task].is_good;
}
