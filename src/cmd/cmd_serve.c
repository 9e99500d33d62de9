#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "api/app_cache.h"
#include "api/pre_hook.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/ring.h"
#include "base/thread.h"
#include "cmd/cmd.h"
#include "cmd/cmd_chat.h"
#include "cmd/cmd_engine.h"
#include "cmd/keys_file.h"
#include "cmd/serve_config.h"
#include "cmd/serve_report.h"
#include "cmd/service_manager.h"
#include "planner/hw_rates.h"
#include "weights/gguf_digest.h"

#define MAX_BODIES 16 /* of the longest kind, at a time */
#define MAX_UNREAD_BYTES ((size_t)8 << 20)
#define IDLE_MS 60000
#define WRITE_MS 60000
#define FULL_SESSIONS 4 /* that many requests of the longest kind fit beside each other */

struct serve {
    struct serve_config config;
    struct cmd_engine model;
    struct tokenizer *tokenizer;
    struct chat_template *chat_template; /* NULL: the model cannot chat */
    struct status_note chat_note;
    struct http_server *http;
    struct api_server api;
    const char *model_names[OPTIONS_MAX_LIST];
    char default_name[CMD_MODEL_MAX_PATH_BYTES];
    int port;                            /* 0: only sockets that have none */
    double peak_gops, read_gb_s;         /* by measure_machine; 0: not measured */
    bool is_read_guessed;                /* something else ran then */
    uint8_t identity[HASH_SHA256_BYTES]; /* of answers, see identify_answers */
    struct thread loader;
    bool is_ready;
    struct ring is_loaded;
    enum status status; /* of loading */
    struct status_note note;
};

/* ---- who may ask ---- */

/* The file's keys in place of those read before; on an error those stay. */
static enum status read_keys(struct serve *serve, struct status_note *note) {
    struct keys_file file;
    const char *path = serve->config.options.keys;
    if (!path) return STATUS_OK;
    enum status status = keys_file_open(&file, path, note);
    if (status) return status;
    status = api_auth_set(&serve->api.auth, file.keys, file.n_keys, clock_now_ns(), note);
    if (status) status_note_prefix(note, path);
    keys_file_close(&file);
    return status;
}

static enum status add_keys(struct serve *serve, struct status_note *note) {
    const struct option_list *keys = &serve->config.options.api_key;
    for (int i = 0; i < keys->n_items; i++) {
        enum status status = api_auth_add(&serve->api.auth, keys->items[i]);
        if (status)
            return status_fail(note, status, "--api-key: %s",
                               status == STATUS_LIMIT ? "too many keys" : "a key must not be empty");
    }
    return read_keys(serve, note);
}

/* ---- the API ---- */

static enum status open_api(struct serve *serve, struct status_note *note) {
    const struct serve_config *config = &serve->config;
    const struct options *options = &config->options;
    struct api_options api = {.model_names = serve->model_names,
                              .n_model_names = options->served_model_name.n_items,
                              .max_calls = (int)options->max_num_seqs * 4,
                              .drain_s = (int)options->shutdown_timeout,
                              .cors_origin = options->cors_origin,
                              .logs_requests = !options->no_access_log,
                              .logs_diagnosis = true,
                              .log_format = config->log_format,
                              .kv_dtype = options->kv_cache_dtype,
                              .block_tokens = (int)options->block_tokens,
                              .has_prefix_cache = !options->no_prefix_cache,
                              .context_bound_by = serve_report_bound_by(config, &serve->model),
                              .moves_over_cap = config->moves_over_cap,
                              .is_demo = options->demo};
    for (int i = 0; i < REQUEST_N_CLASSES; i++) memcpy(api.slo_ns[i], config->classes[i].slo_ns, sizeof api.slo_ns[i]);
    for (int i = 0; i < options->served_model_name.n_items; i++)
        serve->model_names[i] = options->served_model_name.items[i];
    cmd_model_name(serve->model.path, serve->default_name);
    if (api.n_model_names == 0) serve->model_names[api.n_model_names++] = serve->default_name;
    enum status status = api_server_init(&serve->api, &api, note);
    return status ? status : add_keys(serve, note);
}

/* Limits that admission goes by. */
static void set_admission(struct serve *serve) {
    struct admission_limits *limits = &serve->model.options.admission;
    for (int i = 0; i < REQUEST_N_CLASSES; i++) {
        limits->max_prompt[i] = serve->config.classes[i].max_prompt_tokens;
        limits->max_waiting[i] = serve->config.classes[i].max_queued;
    }
    limits->has_tenants = serve->api.auth.n_keys > 1;
}

/* ---- HTTP ---- */

static void on_stop(void *owner) {
    struct serve *serve = owner;
    service_manager_stopping();
    api_server_drain(&serve->api);
    http_server_stop_listening(serve->http);
}

static void on_reload(void *owner) {
    struct serve *serve = owner;
    struct status_note note;
    service_manager_reloading();
    if (serve->config.options.ssl_certfile && http_server_reload_tls(serve->http, &note))
        log_line(LOG_WARN, "certificates were not read again: %s", note.text);
    if (read_keys(serve, &note))
        log_line(LOG_WARN, "keys were not read again: %s", note.text);
    else if (serve->config.options.keys)
        log_line(LOG_INFO, "%d keys were read again", serve->api.auth.n_keys);
    if (serve->is_ready) service_manager_ready("serving");
}

/* Sockets of the service manager in place of --host and --port; one that is called "admin" in place of --admin-listen.
 */
static enum status take_sockets(struct serve *serve, bool *out_is_main, struct status_note *note) {
    struct service_manager_socket sockets[SERVICE_MANAGER_MAX_SOCKETS];
    int n;
    *out_is_main = false;
    enum status status = service_manager_take(sockets, &n, note);
    for (int i = 0; !status && i < n; i++) {
        bool is_admin = strcmp(sockets[i].name, "admin") == 0;
        int port = http_server_port_of(sockets[i].fd);
        status = http_server_listen_fd(serve->http, sockets[i].fd, note);
        if (is_admin) {
            serve->api.options.admin_port = port;
        } else {
            *out_is_main = true;
            serve->port = port;
        }
    }
    return status;
}

static enum status listen_all(struct serve *serve, struct status_note *note) {
    const struct serve_config *config = &serve->config;
    bool has_main;
    enum status status = take_sockets(serve, &has_main, note);
    if (!status && !has_main)
        status = http_server_listen(serve->http, config->options.host, (int)config->options.port, &serve->port, note);
    if (status || !config->admin_host[0] || serve->api.options.admin_port) return status;
    return http_server_listen(serve->http, config->admin_host, config->admin_port, &serve->api.options.admin_port,
                              note);
}

static enum status create_http(struct serve *serve, struct status_note *note) {
    const struct options *options = &serve->config.options;
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
    serve->api.http = serve->http;
    return status;
}

static enum status open_http(struct serve *serve, struct status_note *note) {
    enum status status = create_http(serve, note);
    if (!status) status = listen_all(serve, note);
    if (!status && (http_server_on_signal(serve->http, SIGTERM, on_stop, serve) ||
                    http_server_on_signal(serve->http, SIGINT, on_stop, serve) ||
                    http_server_on_signal(serve->http, SIGHUP, on_reload, serve)))
        status = status_fail(note, STATUS_NOMEM, "cannot wait for signals");
    return status;
}

/* What a request meets in front of the engine. */
static enum status open_front(struct serve *serve, struct status_note *note) {
    const struct options *options = &serve->config.options;
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
    const struct options *options = &serve->config.options;
    uint8_t digest[HASH_SHA256_BYTES];
    char numerics[200];
    gguf_digest(serve->model.gguf, digest);
    int n = snprintf(numerics, sizeof numerics, "%s %s %s %s %d", KVICK_VERSION, options->kv_cache_dtype,
                     options->activations, options->isa ? options->isa : "", engine_max_context(serve->model.engine));
    hash_sha256(digest, sizeof digest, numerics, (size_t)n, serve->identity);
}

/* ---- loading ---- */

/* The roofs of the dashboard's roofline: nothing else runs yet. */
static enum status measure_machine(struct serve *serve, struct status_note *note) {
    const struct engine_options *options = &serve->model.options;
    struct capacity_limits limits;
    struct hw_rates rates;
    if (!serve->config.options.demo) return STATUS_OK;
    capacity_read_limits(&limits, "");
    enum status status = hw_rates_of_this(&rates, options->n_threads, options->tiers, limits.memory_bytes, note);
    if (status) return status;
    serve->peak_gops = rates.gops;
    serve->read_gb_s = rates.gb_s;
    serve->is_read_guessed = rates.is_read_guessed;
    return STATUS_OK;
}

/* On a thread of its own, so that /health answers meanwhile. */
static void load_main(void *owner) {
    struct serve *serve = owner;
    char done = 1;
    enum status status = measure_machine(serve, &serve->note);
    if (!status) status = cmd_engine_begin(&serve->model, &serve->note);
    if (!status) status = tokenizer_open(&serve->tokenizer, serve->model.gguf, &serve->note);
    /* Without a template the model still completes texts; a chat is told why it cannot. */
    if (!status && cmd_chat_template(serve->model.gguf, &serve->chat_template, &serve->chat_note))
        serve->chat_template = NULL;
    if (!status) status = cmd_engine_await(&serve->model, &serve->note);
    if (!status && serve->config.options.app_cache) identify_answers(serve);
    serve->status = status;
    if (ring_push(&serve->is_loaded, &done)) BUG("cannot say that the model is loaded");
}

static void say_ready(const struct serve *serve) {
    const struct options *options = &serve->config.options;
    struct serve_facts facts;
    serve_report_read(&facts, &serve->config, &serve->model);
    facts.n_keys = serve->api.auth.n_keys;
    serve_report_print(&facts);
    if (serve->api.options.admin_port)
        printf("administration on port %d: /dashboard, /metrics, /debug/diagnosis, /debug/keys, /debug/requests\n",
               serve->api.options.admin_port);
    printf("listening on %s://%s:%d as %s\n", options->ssl_certfile ? "https" : "http", options->host, serve->port,
           serve->model_names[0]);
    fflush(stdout);
    serve_report_warn(&facts);
    service_manager_ready("serving");
}

static void on_loaded(void *owner) {
    struct serve *serve = owner;
    char done;
    ring_disarm(&serve->is_loaded);
    if (!ring_pop(&serve->is_loaded, &done)) return;
    serve->api.options.peak_gops = serve->peak_gops;
    serve->api.options.read_gb_s = serve->read_gb_s;
    serve->api.options.is_read_guessed = serve->is_read_guessed;
    if (!serve->status)
        serve->status = api_server_open(&serve->api, serve->model.engine, serve->tokenizer, serve->chat_template,
                                        serve->chat_note.text, cmd_chat_rules(serve->model.gguf), &serve->note);
    if (serve->status) {
        http_server_stop(serve->http);
    } else {
        if (serve->api.cache) app_cache_set_identity(serve->api.cache, serve->identity);
        serve->is_ready = true;
        say_ready(serve);
    }
}

static enum status start_loading(struct serve *serve, struct status_note *note) {
    enum status status = ring_init(&serve->is_loaded, 1, 1);
    if (!status) status = http_server_watch(serve->http, serve->is_loaded.event_fd, on_loaded, serve);
    if (!status && !ring_arm(&serve->is_loaded)) BUG("loaded before it began");
    if (!status) status = thread_start(&serve->loader, "load", load_main, serve);
    if (status) return status_fail(note, status, "cannot start loading the model");
    return STATUS_OK;
}

/* ---- life ---- */

static void close_all(struct serve *serve) {
    api_server_close(&serve->api);
    http_server_destroy(&serve->http);
    chat_template_destroy(&serve->chat_template);
    tokenizer_close(&serve->tokenizer);
    cmd_engine_close(&serve->model);
    api_server_deinit(&serve->api);
    ring_deinit(&serve->is_loaded);
}

static enum status run(struct serve *serve, struct status_note *note) {
    set_admission(serve);
    enum status status = open_http(serve, note);
    if (!status) status = open_front(serve, note);
    if (!status) status = start_loading(serve, note);
    if (status) return status;
    http_server_run(serve->http);
    /* A signal may have ended it before the model was there: status and note are the loader's until it has ended. */
    thread_join(&serve->loader);
    if (serve->status) *note = serve->note;
    return serve->status;
}

/* All that can be known without binding a port or loading weights. */
static enum status check(struct serve *serve, struct status_note *note) {
    struct serve_facts facts;
    enum status status = create_http(serve, note);
    if (!status) status = open_front(serve, note);
    if (!status) status = serve_report_expect(&facts, &serve->config, &serve->model, note);
    if (status) return status;
    facts.n_keys = serve->api.auth.n_keys;
    serve_report_print(&facts);
    serve_report_warn(&facts);
    printf("the configuration is good\n");
    return STATUS_OK;
}

static enum status open_and_run(struct serve *serve, struct status_note *note) {
    const struct options *options = &serve->config.options;
    struct cmd_engine_needs needs = {
        .max_sequences = (int)options->max_num_seqs, .n_full = FULL_SESSIONS, .is_serving = true, .is_hasty = true};
    enum status status = cmd_engine_open_file(&serve->model, serve->config.model, &serve->config.engine, &needs, note);
    if (status) options_add_source(options, note);
    if (status) return status;
    status = open_api(serve, note);
    if (!status) status = options->check ? check(serve, note) : run(serve, note);
    close_all(serve);
    return status;
}

int cmd_serve(const struct options *flags, int n_words, const char **words) {
    struct serve serve = {0};
    struct status_note note = {0};
    int exit_code;
    if (serve_config_read(&serve.config, flags, n_words, words, &note)) {
        exit_code = cmd_usage("serve", "%s", note.text);
    } else if (flags->print_config) {
        options_print(stdout, &serve.config.options, FOR_SERVE);
        exit_code = 0;
    } else {
        log_set_level(serve.config.log_level);
        log_set_format(serve.config.log_format);
        enum status status = open_and_run(&serve, &note);
        exit_code = status ? cmd_fail(NULL, status, &note) : 0;
    }
    serve_config_deinit(&serve.config);
    return exit_code;
}
