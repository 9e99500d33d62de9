#include "api/tokenize_worker.h"

#include <string.h>
#include <time.h>

#include "api/api_call.h"
#include "api/api_gate.h"
#include "api/grammar_request.h"
#include "api/pre_hook.h"
#include "base/clock.h"
#include "base/mem.h"
#include "chat/chat_prompt.h"

/* ---- text to ids ---- */

static bool wall_clock(int64_t *out_now_s) {
    struct tm tm;
    time_t now = time(NULL);
    if (!localtime_r(&now, &tm)) return false;
    *out_now_s = (int64_t)now + tm.tm_gmtoff;
    return true;
}

enum status tokenize_worker_encode(const struct api_server *api, enum api_kind kind, bool adds_special,
                                   struct api_prompt *prompt, int64_t *out_rendered_ns, struct status_note *note) {
    struct id_list ids;
    int64_t now_s = 0;
    enum status status = STATUS_OK;
    if (!prompt->text) return STATUS_OK;
    id_list_init(&ids, (size_t)engine_max_context(api->engine) * 4 + 1024); /* far past the limit is no count */
    if (kind == API_CHAT) {
        if (!wall_clock(&now_s)) status = status_fail(note, STATUS_IO, "the wall clock cannot be read");
        if (!status)
            status = chat_prompt_encode(api->chat_template, api->tokenizer, prompt->text, prompt->n_bytes, now_s, &ids,
                                        out_rendered_ns, note);
    } else {
        bool has_bos = adds_special && tokenizer_adds_bos(api->tokenizer);
        unsigned flags = (kind == API_COMPLETION ? TOKENIZER_PARSE_SPECIAL : 0) | (has_bos ? TOKENIZER_ADD_BOS : 0);
        status = tokenizer_encode(api->tokenizer, prompt->text, prompt->n_bytes, flags, &ids, note);
    }
    if (!status) {
        prompt->n_ids = (int)ids.n_ids;
        prompt->ids = (uint32_t *)id_list_take(&ids);
        if (!prompt->ids && prompt->n_ids) status = status_fail(note, STATUS_NOMEM, "no memory for the prompt");
    }
    id_list_deinit(&ids);
    return status;
}

/* ---- ids to a request of the engine ---- */

static bool refuse_size(const struct api_call *call, const struct api_prompt *prompt, const char *param,
                        int max_context, struct api_fault *fault) {
    const char *name = call->terms.name;
    long long wanted = call->params.max_tokens < 0 ? 1 : (long long)call->params.max_tokens;
    bool is_key = max_context < engine_max_context(call->api->engine);
    return api_fault_set(fault, 400, "context_length_exceeded", param,
                         "the context%s%s%s holds %d tokens; the prompt has %d and the answer may have %lld",
                         is_key ? " of the key '" : "", is_key ? name : "", is_key ? "'" : "", max_context,
                         prompt->n_ids, wanted);
}

/* How many tokens the answer may have; false: fault is set. */
static bool find_room(const struct api_call *call, const struct api_prompt *prompt, int *out_max_new,
                      struct api_fault *fault) {
    int max_context = api_call_max_context(call->api, &call->terms), room = max_context - prompt->n_ids;
    int max_output = call->terms.max_output;
    int64_t wanted = call->params.max_tokens;
    static const char *const names[] = {
        [API_CHAT] = "messages", [API_COMPLETION] = "prompt", [API_EMBEDDING] = "input"};
    if (prompt->n_ids == 0)
        return api_fault_set(fault, 400, NULL, names[call->kind],
                             "the prompt has no tokens and the model wants none in front");
    if (room < (call->kind != API_EMBEDDING) || wanted > room)
        return refuse_size(call, prompt, names[call->kind], max_context, fault);
    if (max_output && wanted > max_output)
        return api_fault_set(fault, 400, "max_output_exceeded", "max_tokens",
                             "an answer of %lld tokens is wanted, the key '%s' may have %d", (long long)wanted,
                             call->terms.name, max_output);
    if (max_output && room > max_output) room = max_output;
    *out_max_new = wanted < 0 ? room : (int)wanted;
    return true;
}

static void set_stop_tokens(const struct api_call *call, struct request *request) {
    int n_ends;
    const int32_t *ends = tokenizer_end_ids(call->api->tokenizer, &n_ends);
    for (int i = 0; i < n_ends && i < REQUEST_MAX_STOP_TOKENS / 2; i++)
        request->stop_tokens[request->n_stop_tokens++] = (uint32_t)ends[i];
    request->n_end_tokens = request->n_stop_tokens;
    for (int i = 0; i < call->params.n_stop_ids; i++)
        request->stop_tokens[request->n_stop_tokens++] = call->params.stop_ids[i];
}

/* Tenants must not meet: the key's salt, which is zero where keys share, comes before the client's. */
static void set_salt(const struct api_call *call, struct request *request) {
    const struct api_params *params = &call->params;
    if (!params->salt && !call->terms.has_salt) return;
    hash_sha256(call->terms.salt, sizeof call->terms.salt, params->salt, params->salt ? params->n_salt : 0,
                request->salt.bytes);
}

/* Compiles what the answer must look like; the vocabulary is made for the first such request. */
static bool make_grammar(struct api_call *call, struct api_prompt *prompt, struct api_fault *fault) {
    const struct api_params *params = &call->params;
    struct status_note note = {0};
    size_t n_bytes;
    enum status status = STATUS_OK;
    if (!params->grammar) return true;
    if (!call->api->grammar_vocab)
        status = grammar_vocab_create(&call->api->grammar_vocab, call->api->tokenizer, &note);
    char *text = status ? NULL : grammar_request_text(params, &n_bytes);
    if (text)
        status = grammar_create(&prompt->grammar, call->api->grammar_vocab, params->grammar_kind, text, n_bytes,
                                params->n, &note);
    else if (!status)
        status = STATUS_NOMEM;
    mem_free(text);
    if (status == STATUS_INVALID)
        return api_fault_set(fault, 400, "invalid_grammar", params->grammar_field, "'%s' cannot be honoured: %s",
                             params->grammar_field, note.text);
    if (status) api_fault_from_status(fault, status, &note);
    return !status;
}

/* Place for those of the answer, and of an echoed prompt. False: no memory. */
static bool make_logprobs(const struct api_call *call, struct request *request) {
    size_t n_each = (size_t)(1 + call->params.n_top_logprobs);
    if (!call->params.has_logprobs) return true;
    request->n_top_logprobs = call->params.n_top_logprobs;
    request->logprobs =
        mem_alloc_array((size_t)request->n_choices * (size_t)request->max_new * n_each + 1, sizeof *request->logprobs);
    if (!call->extras.has_echo) return request->logprobs != NULL;
    request->prompt_logprobs = mem_alloc_array((size_t)request->n_prompt * n_each, sizeof *request->prompt_logprobs);
    return request->logprobs && request->prompt_logprobs;
}

static bool make_request(struct api_call *call, struct api_prompt *prompt, struct api_fault *fault) {
    const struct api_params *params = &call->params;
    int max_new = 0;
    if (!find_room(call, prompt, &max_new, fault) || !make_grammar(call, prompt, fault)) return false;
    struct request *request = engine_client_make_choices(prompt->ids, prompt->n_ids, max_new, params->n);
    if (!request) return api_fault_set(fault, 503, "out_of_memory", NULL, "no memory for %d tokens", prompt->n_ids);
    prompt->request = request;
    request->owner = prompt;
    request->sampling = params->sampling;
    request->min_new = params->min_tokens < max_new ? (int)params->min_tokens : max_new;
    request->ignore_eos = params->ignore_eos;
    request->has_cache = !params->has_cache_off;
    request->class_ = params->class_;
    request->priority = params->priority;
    request->deadline_ns = call->deadline_ns;
    request->pin_ns = call->extras.pin_ns;
    request->tells_progress = params->wants_progress;
    request->tenant_id = call->terms.tenant_id;
    request->tenant_weight = call->terms.weight;
    request->max_unread = 256;
    request->max_blocked_ns = 30000000000;
    if (prompt->grammar) request->mask = grammar_mask(prompt->grammar);
    set_stop_tokens(call, request);
    set_salt(call, request);
    if (call->kind == API_EMBEDDING) {
        request->pooling = POOLING_MEAN;
        request->is_normalised = true;
        request->embedding =
            mem_alloc_array((size_t)engine_model(call->api->engine)->d_model, sizeof *request->embedding);
        if (!request->embedding) return api_fault_set(fault, 503, "out_of_memory", NULL, "no memory for the vector");
    }
    if (make_logprobs(call, request)) return true;
    return api_fault_set(fault, 503, "out_of_memory", NULL, "no memory for the log-probabilities");
}

/* ---- the thread ---- */

/* Spans that touch: each begins at the stamp where the one before ended. The last ends when the request is handed on.
 */
static void add_spans(const struct api_call *call, struct api_prompt *prompt, int64_t begin_ns, int64_t rendered_ns) {
    struct phase_stats *stats = &prompt->request->stats;
    stats->received_ns = call->received_ns;
    phase_stats_add(stats, PHASE_READ, call->received_ns, call->read_ns);
    phase_stats_add(stats, PHASE_PREPROCESS, call->read_ns, call->parsed_ns);
    phase_stats_add(stats, PHASE_TEXT_QUEUE, call->parsed_ns, begin_ns);
    if (rendered_ns) phase_stats_add(stats, PHASE_TEMPLATE, begin_ns, rendered_ns);
    prompt->tokenize_begin_ns = rendered_ns ? rendered_ns : begin_ns;
}

static void report(struct tokenize_worker *worker, struct api_call *call, int prompt_idx) {
    struct tokenize_result result = {call, prompt_idx};
    if (ring_push(&worker->results, &result)) BUG("more results than prompts");
}

static bool encode_all(struct api_call *call) {
    for (int i = 0; i < call->n_prompts; i++) {
        struct api_prompt *prompt = &call->prompts[i];
        struct status_note note = {0};
        int64_t begin_ns = clock_now_ns(), rendered_ns = 0;
        if (atomic_load_explicit(&call->is_gone, memory_order_relaxed))
            return api_fault_set(&call->fault, 499, NULL, NULL, "the client is gone");
        enum status status =
            tokenize_worker_encode(call->api, call->kind, !call->extras.is_plain, prompt, &rendered_ns, &note);
        if (status) {
            api_fault_from_status(&call->fault, status, &note);
            return false;
        }
        if (!make_request(call, prompt, &call->fault)) return false;
        add_spans(call, prompt, begin_ns, rendered_ns);
    }
    return true;
}

void tokenize_worker_submit(struct tokenize_worker *worker, struct api_call *call) {
    int n_prompts = call->n_prompts;
    for (int i = 0; i < n_prompts; i++) {
        struct api_prompt *prompt = &call->prompts[i];
        struct phase_stats *stats = &prompt->request->stats;
        int64_t now_ns = clock_now_ns();
        phase_stats_add(stats, PHASE_TOKENIZE, prompt->tokenize_begin_ns, call->ready_ns ? call->ready_ns : now_ns);
        if (call->ready_ns) phase_stats_add(stats, PHASE_PREPROCESS, call->ready_ns, now_ns); /* at the gate */
        /* Once the last prompt is submitted the call may be gone. */
        prompt->before = prompt->request->stats;
        enum status status = call->is_estimate ? engine_client_ask(worker->api->engine, prompt->request)
                                               : engine_client_submit(worker->api->engine, prompt->request);
        if (status) report(worker, call, i);
    }
}

/* Nothing of a call runs unless all of it can be asked. */
static void take_call(struct tokenize_worker *worker, struct api_call *call) {
    if (!encode_all(call)) {
        report(worker, call, TOKENIZE_FAILED);
        return;
    }
    if (!api_gate_wants(call)) {
        tokenize_worker_submit(worker, call);
        return;
    }
    if (call->api->hook && !call->is_cleared) call->question = pre_hook_question(call, &call->n_question);
    call->ready_ns = clock_now_ns();
    report(worker, call, TOKENIZE_READY);
}

static void worker_main(void *arg) {
    struct tokenize_worker *worker = arg;
    struct api_call *call;
    for (;;) {
        ring_wait(&worker->calls, -1);
        while (ring_pop(&worker->calls, &call)) {
            if (!call) return;
            take_call(worker, call);
        }
    }
}

enum status tokenize_worker_start(struct tokenize_worker *worker, struct api_server *api, int max_calls) {
    *worker = (struct tokenize_worker){.api = api, .calls.event_fd = -1, .results.event_fd = -1};
    enum status status = ring_init(&worker->calls, sizeof(struct api_call *), (size_t)max_calls + 1);
    if (!status)
        status = ring_init(&worker->results, sizeof(struct tokenize_result), (size_t)max_calls * API_MAX_PROMPTS);
    if (!status) status = thread_start(&worker->thread, "tokenize", worker_main, worker);
    if (!status) return STATUS_OK;
    ring_deinit(&worker->calls);
    ring_deinit(&worker->results);
    return status;
}

void tokenize_worker_stop(struct tokenize_worker *worker) {
    struct api_call *end = NULL;
    while (ring_push(&worker->calls, &end)) thread_sleep_ms(1);
    thread_join(&worker->thread);
    ring_deinit(&worker->calls);
    ring_deinit(&worker->results);
}

enum status tokenize_worker_push(struct tokenize_worker *worker, struct api_call *call) {
    return ring_push(&worker->calls, &call);
}
