#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "api/app_cache.h"
#include "api/pre_hook.h"
#include "base/log.h"
#include "base/ring.h"
#include "base/thread.h"
#include "cmd/cmd.h"
#include "cmd/cmd_chat.h"
#include "cmd/cmd_engine.h"
#include "weights/gguf_digest.h"

#define MAX_BODIES 16 /* of the longest kind, at a time */
#define MAX_UNREAD_BYTES ((size_t)8 << 20)
#define IDLE_MS 60000
#define WRITE_MS 60000
#define TYPICAL_POS 512 /* of an answer's token */
#define FULL_SESSIONS 4 /* that many requests of the longest kind fit beside each other */

struct serve {
    const struct options *options;
    struct cmd_engine model;
    struct tokenizer *tokenizer;
    struct chat_template *chat_template; /* NULL: the model cannot chat */
    struct status_note chat_note;
    struct http_server *http;
    struct api_server api;
    const char *model_names[OPTIONS_MAX_LIST];
    char default_name[CMD_MODEL_MAX_PATH_BYTES];
    int port;
    uint8_t identity[HASH_SHA256_BYTES]; /* of answers, see identify_answers */
    struct thread loader;
    bool is_loading; /* the loader is to be joined */
    struct ring is_loaded;
    enum status status; /* of loading */
    struct status_note note;
};

static enum status add_keys(struct serve *serve, struct status_note *note) {
    for (int i = 0; i < serve->options->api_key.n_items; i++) {
        enum status status = api_auth_add(&serve->api.auth, serve->options->api_key.items[i]);
        if (status)
            return status_fail(note, status, "--api-key: %s",
                               status == STATUS_LIMIT ? "too many keys" : "a key must not be empty");
    }
    return STATUS_OK;
}

static enum status open_api(struct serve *serve, struct status_note *note) {
    const struct options *options = serve->options;
    struct api_options api = {.model_names = serve->model_names,
                              .n_model_names = options->served_model_name.n_items,
                              .max_calls = (int)options->max_num_seqs * 4,
                              .drain_s = (int)options->shutdown_timeout,
                              .cors_origin = options->cors_origin,
                              .logs_requests = !options->no_access_log,
                              .kv_dtype = options->kv_cache_dtype,
                              .block_tokens = (int)options->block_tokens,
                              .has_prefix_cache = !options->no_prefix_cache};
    for (int i = 0; i < options->served_model_name.n_items; i++)
        serve->model_names[i] = options->served_model_name.items[i];
    cmd_model_name(serve->model.path, serve->default_name);
    if (api.n_model_names == 0) serve->model_names[api.n_model_names++] = serve->default_name;
    enum status status = api_server_init(&serve->api, &api, note);
    return status ? status : add_keys(serve, note);
}

static void on_stop(void *owner) {
    struct serve *serve = owner;
    api_server_drain(&serve->api);
    http_server_stop_listening(serve->http);
}

static void on_reload(void *owner) {
    struct serve *serve = owner;
    struct status_note note;
    if (serve->options->ssl_certfile && http_server_reload_tls(serve->http, &note))
        log_line(LOG_WARN, "certificates were not read again: %s", note.text);
}

static enum status open_http(struct serve *serve, struct status_note *note) {
    const struct options *options = serve->options;
    struct http_limits limits = {.max_connections = (int)options->max_connections,
                                 .max_body_bytes = (size_t)options->max_body_bytes,
                                 .max_bodies_bytes = (size_t)options->max_body_bytes * MAX_BODIES,
                                 .max_unread_bytes = MAX_UNREAD_BYTES,
                                 .idle_ms = IDLE_MS,
                                 .head_ms = (int)options->header_timeout * 1000,
                                 .body_ms = (int)options->header_timeout * 3000,
                                 .write_ms = WRITE_MS};
    struct http_handlers handlers = api_server_handlers(&serve->api);
    struct http_tls tls = {options->ssl_certfile, options->ssl_keyfile};
    enum status status = http_server_create(&serve->http, &limits, &tls, &handlers, note);
    if (!status) status = http_server_listen(serve->http, options->host, (int)options->port, &serve->port, note);
    if (!status && (http_server_on_signal(serve->http, SIGTERM, on_stop, serve) ||
                    http_server_on_signal(serve->http, SIGINT, on_stop, serve) ||
                    http_server_on_signal(serve->http, SIGHUP, on_reload, serve)))
        status = status_fail(note, STATUS_NOMEM, "cannot wait for signals");
    serve->api.http = serve->http;
    return status;
}

/* What a request meets in front of the engine. */
static enum status open_front(struct serve *serve, struct status_note *note) {
    const struct options *options = serve->options;
    struct pre_hook_options hook = {.address = options->pre_hook,
                                    .timeout_ms = (int)options->pre_hook_timeout,
                                    .lets_pass = options->pre_hook_fail && strcmp(options->pre_hook_fail, "open") == 0,
                                    .max_asks = serve->api.options.max_calls};
    struct app_cache_options cache = {
        .address = options->app_cache, .ttl_s = (int)options->app_cache_ttl, .max_calls = serve->api.options.max_calls};
    enum status status = STATUS_OK;
    if (hook.address && (status = pre_hook_create(&serve->api.hook, serve->http, &hook, note)) != STATUS_OK)
        status_note_prefix(note, "--pre-hook");
    if (!status && cache.address &&
        (status = app_cache_create(&serve->api.cache, serve->http, &cache, note)) != STATUS_OK)
        status_note_prefix(note, "--app-cache");
    return status;
}

/* All that answers depend on beside the request: the model's file, how it is computed, how much fits. */
static void identify_answers(struct serve *serve) {
    const struct options *options = serve->options;
    uint8_t digest[HASH_SHA256_BYTES];
    char numerics[200];
    gguf_digest(serve->model.gguf, digest);
    int n = snprintf(numerics, sizeof numerics, "%s %s %s %s %d", KVICK_VERSION, options->kv_cache_dtype,
                     options->activations, options->isa ? options->isa : "", engine_max_context(serve->model.engine));
    hash_sha256(digest, sizeof digest, numerics, (size_t)n, serve->identity);
}

/* On a thread of its own, so that /health answers meanwhile. */
static void load_main(void *owner) {
    struct serve *serve = owner;
    char done = 1;
    enum status status = cmd_engine_begin(&serve->model, &serve->note);
    if (!status) status = tokenizer_open(&serve->tokenizer, serve->model.gguf, &serve->note);
    /* Without a template the model still completes texts; a chat is told why it cannot. */
    if (!status && cmd_chat_template(serve->model.gguf, &serve->chat_template, &serve->chat_note))
        serve->chat_template = NULL;
    if (!status) status = cmd_engine_await(&serve->model, &serve->note);
    if (!status && serve->options->app_cache) identify_answers(serve);
    serve->status = status;
    if (ring_push(&serve->is_loaded, &done)) BUG("cannot say that the model is loaded");
}

static void say_ready(const struct serve *serve);

static void on_loaded(void *owner) {
    struct serve *serve = owner;
    char done;
    ring_disarm(&serve->is_loaded);
    if (!ring_pop(&serve->is_loaded, &done)) return;
    if (!serve->status)
        serve->status = api_server_open(&serve->api, serve->model.engine, serve->tokenizer, serve->chat_template,
                                        serve->chat_note.text, cmd_chat_rules(serve->model.gguf), &serve->note);
    if (serve->status) {
        http_server_stop(serve->http);
        return;
    }
    if (serve->api.cache) app_cache_set_identity(serve->api.cache, serve->identity);
    say_ready(serve);
}

static enum status start_loading(struct serve *serve, struct status_note *note) {
    enum status status = ring_init(&serve->is_loaded, 1, 1);
    if (!status) status = http_server_watch(serve->http, serve->is_loaded.event_fd, on_loaded, serve);
    if (!status && !ring_arm(&serve->is_loaded)) BUG("loaded before it began");
    if (!status) status = thread_start(&serve->loader, "load", load_main, serve);
    if (status) return status_fail(note, status, "cannot start loading the model");
    serve->is_loading = true;
    return STATUS_OK;
}

/* Of a prompt on an idle machine, in steps as long as they may be. */
static int64_t predict_ttft_ns(const struct step_cost *cost, int64_t limit_ns, int max_chunk, int n_prompt) {
    const struct step_shape nothing = {0};
    int64_t ns = 0;
    for (int from = 0, n; from < n_prompt; from += n) {
        struct step_shape shape = nothing;
        n = n_prompt - from < max_chunk ? n_prompt - from : max_chunk;
        n = step_cost_max_prefill(cost, &nothing, from, n, n_prompt - 1, limit_ns);
        if (n < 1) n = 1;
        step_cost_add_prefill(cost, &shape, from, from + n, from + n == n_prompt);
        ns += step_cost_ns(cost, &shape);
    }
    return ns;
}

/* How long steps may take, and what follows from that. */
static void say_pace(const struct serve *serve) {
    static const char *const sources[] = {[COST_MODEL_GUESSED] = "estimated, to be measured while idle",
                                          [COST_MODEL_READ] = "as measured before",
                                          [COST_MODEL_MEASURED] = "as measured now"};
    const struct engine *engine = serve->model.engine;
    const struct cost_model *costs = engine_cost(engine);
    const struct step_limits *limits = engine_step_limits(engine);
    struct step_shape nobody = {0}, reader = {0};
    struct step_cost cost;
    if (!costs) return;
    cost_model_fill(costs, &cost);
    step_cost_add_decode(&cost, &reader, TYPICAL_POS);
    int64_t limit_ns = step_bound_ns(&cost, limits, &nobody, STEP_PROMPT);
    if (limits->is_unbounded)
        printf("steps    not bounded in time: --chunk 0 runs each prompt in one step, answers wait that long\n");
    else
        printf("steps    at most %.0f ms beside an answer, else %.0f ms; costs %s\n",
               (double)step_bound_ns(&cost, limits, &reader, STEP_PROMPT) / 1e6, (double)limit_ns / 1e6,
               sources[costs->source]);
    int max_chunk = serve->model.options.max_chunk, longest = engine_max_context(engine) - 1;
    const int lengths[] = {512, 4096, longest};
    printf("first token after");
    for (int i = 0; i < 3; i++)
        if (lengths[i] < longest || i == 2)
            printf("%s %.0f ms (%d tokens)", i ? "," : "",
                   (double)predict_ttft_ns(&cost, limit_ns, max_chunk, lengths[i]) / 1e6, lengths[i]);
    printf("; one answer %.0f tokens/s\n", 1e9 / (double)step_cost_ns(&cost, &reader));
}

static void say_ready(const struct serve *serve) {
    const struct options *options = serve->options;
    bool is_loopback = strcmp(options->host, "127.0.0.1") == 0 || strcmp(options->host, "localhost") == 0 ||
                       strcmp(options->host, "::1") == 0;
    printf("model    %s, %.0f MB packed\n", serve->model.path, (double)engine_weight_bytes(serve->model.engine) / 1e6);
    printf("KV cache %.0f MB, %s; one request may have %d tokens, %ld requests run at a time\n",
           (double)engine_kv_bytes(serve->model.engine) / 1e6, options->kv_cache_dtype,
           engine_max_context(serve->model.engine), options->max_num_seqs);
    printf("prefix cache %s: blocks of %ld tokens, so a shared beginning helps from %ld tokens on\n",
           options->no_prefix_cache ? "off" : "on", options->block_tokens, options->block_tokens + 1);
    say_pace(serve);
    printf("listening on %s://%s:%d as %s\n", options->ssl_certfile ? "https" : "http", options->host, serve->port,
           serve->model_names[0]);
    fflush(stdout);
    if (!is_loopback && options->api_key.n_items == 0)
        log_line(LOG_WARN, "%s is not loopback and there is no --api-key: everybody who reaches it may ask",
                 options->host);
}

static void close_all(struct serve *serve) {
    if (serve->is_loading) thread_join(&serve->loader);
    api_server_close(&serve->api);
    http_server_destroy(&serve->http);
    chat_template_destroy(&serve->chat_template);
    tokenizer_close(&serve->tokenizer);
    cmd_engine_close(&serve->model);
    api_server_deinit(&serve->api);
    ring_deinit(&serve->is_loaded);
}

/* A guardrail that fails is no matter for a default: both ways hurt somebody. */
static bool check_front(const struct options *options, struct status_note *note) {
    const char *fail = options->pre_hook_fail;
    if (options->pre_hook && !fail)
        status_fail(note, STATUS_INVALID, "--pre-hook needs --pre-hook-fail open (then requests pass) or closed");
    else if (fail && !options->pre_hook)
        status_fail(note, STATUS_INVALID, "--pre-hook-fail needs --pre-hook");
    else if (fail && strcmp(fail, "open") != 0 && strcmp(fail, "closed") != 0)
        status_fail(note, STATUS_INVALID, "--pre-hook-fail: '%.40s' is neither open nor closed", fail);
    else if (options->pre_hook_timeout < 1 || options->pre_hook_timeout > 600000)
        status_fail(note, STATUS_INVALID, "--pre-hook-timeout: %ld is not within 1..600000", options->pre_hook_timeout);
    else if (options->app_cache_ttl < 1 || options->app_cache_ttl > 31536000)
        status_fail(note, STATUS_INVALID, "--app-cache-ttl: %ld is not within 1..31536000", options->app_cache_ttl);
    else
        return true;
    return false;
}

static int check_usage(const struct options *options, struct status_note *note) {
    if (cmd_engine_check(options, note)) return 1;
    if (options->port < 0 || options->port > 65535)
        status_fail(note, STATUS_INVALID, "--port: %ld is not within 0..65535", options->port);
    else if (options->max_num_seqs < 1 || options->max_num_seqs > 4096)
        status_fail(note, STATUS_INVALID, "--max-num-seqs: %ld is not within 1..4096", options->max_num_seqs);
    else if (options->max_connections < 1 || options->max_connections > 1000000)
        status_fail(note, STATUS_INVALID, "--max-connections: %ld is not within 1..1000000", options->max_connections);
    else if (options->max_body_bytes < 1024 || options->max_body_bytes > INT64_C(1) << 30)
        status_fail(note, STATUS_INVALID, "--max-body-bytes: %ld is not within 1024..%lld", options->max_body_bytes,
                    1LL << 30);
    else if (options->header_timeout < 1 || options->header_timeout > 3600)
        status_fail(note, STATUS_INVALID, "--header-timeout: %ld is not within 1..3600", options->header_timeout);
    else if (!check_front(options, note))
        return 1;
    else if (!options->ssl_certfile != !options->ssl_keyfile)
        status_fail(note, STATUS_INVALID, "--ssl-certfile and --ssl-keyfile belong together");
    else if (options->shutdown_timeout < 0 || options->shutdown_timeout > 86400)
        status_fail(note, STATUS_INVALID, "--shutdown-timeout: %ld is not within 0..86400", options->shutdown_timeout);
    else
        return 0;
    return 1;
}

int cmd_serve(const struct options *options, int n_words, const char **words) {
    struct serve serve = {.options = options};
    struct status_note note = {0};
    if (n_words != 1) return cmd_usage("serve", "one model is expected, %d were given", n_words);
    if (check_usage(options, &note)) return cmd_usage("serve", "%s", note.text);
    struct options engine_options = *options;
    engine_options.context = options->max_model_len;
    struct cmd_engine_needs needs = {
        .max_sequences = (int)options->max_num_seqs, .n_full = FULL_SESSIONS, .is_serving = true, .is_hasty = true};
    enum status status = cmd_engine_open_file(&serve.model, words[0], &engine_options, &needs, &note);
    if (status) return cmd_fail(NULL, status, &note);
    status = open_api(&serve, &note);
    if (!status) status = open_http(&serve, &note);
    if (!status) status = open_front(&serve, &note);
    if (!status) status = start_loading(&serve, &note);
    if (!status) {
        http_server_run(serve.http);
        if (serve.status) note = serve.note;
        status = serve.status;
    }
    close_all(&serve);
    return status ? cmd_fail(NULL, status, &note) : 0;
}
