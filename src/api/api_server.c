#include "api/api_server.h"

#include <string.h>
#include <sys/random.h>
#include <time.h>

#include "api/api_admin.h"
#include "api/api_call.h"
#include "api/api_dashboard.h"
#include "api/api_gate.h"
#include "api/api_routes.h"
#include "api/app_cache.h"
#include "api/pre_hook.h"
#include "base/clock.h"
#include "base/mem.h"
#include "base/rng.h"

#define TICK_MS 100

/* What is wrong is said when it begins, and when it is over. */
static void on_diagnosis(void *owner, const struct diagnosis_change *change) {
    (void)owner;
    if (change->is_begin)
        log_line(LOG_WARN, "%s: %s. What helps: %s", change->rule, change->sentence, change->advice);
    else
        log_line(LOG_WARN, "%s is over after %.0f s", change->rule, (double)(change->at_ns - change->since_ns) / 1e9);
}

static enum status open_diagnosis(struct api_server *api, struct status_note *note) {
    struct diagnosis_window_options options = diagnosis_options();
    for (int i = 0; i < REQUEST_N_CLASSES; i++) options.slo_ttft_ns[i] = api->options.slo_ns[i][SLO_TTFT];
    if (diagnosis_create(&api->diagnosis, &options)) return status_fail(note, STATUS_NOMEM, "no memory for diagnosis");
    if (api->options.logs_diagnosis) diagnosis_listen(api->diagnosis, on_diagnosis, api);
    return STATUS_OK;
}

enum status api_server_init(struct api_server *api, const struct api_options *options, struct status_note *note) {
    *api = (struct api_server){.options = *options, .started_s = (int64_t)time(NULL)};
    if (getrandom(api->random, sizeof api->random, 0) != (ssize_t)sizeof api->random)
        return status_fail(note, STATUS_IO, "the system gives no random numbers");
    if (api_auth_init(&api->auth)) return status_fail(note, STATUS_NOMEM, "no memory for the keys");
    if (api_history_init(&api->history) || api_dashboard_create(&api->dashboard))
        return status_fail(note, STATUS_NOMEM, "no memory for the last requests");
    return open_diagnosis(api, note);
}

void api_server_deinit(struct api_server *api) {
    while (api->calls) api_call_close(api->calls);
    api_auth_deinit(&api->auth);
    grammar_vocab_destroy(&api->grammar_vocab);
    api_history_deinit(&api->history);
    api_dashboard_destroy(&api->dashboard);
    diagnosis_destroy(&api->diagnosis);
}

void api_server_close(struct api_server *api) {
    for (struct api_call *call = api->calls; call; call = call->next) {
        pre_hook_drop(call);
        app_cache_drop(call);
    }
    pre_hook_destroy(&api->hook);
    app_cache_destroy(&api->cache);
    if (!api->worker) return;
    tokenize_worker_stop(api->worker);
    mem_free(api->worker);
    api->worker = NULL;
}

uint64_t api_server_random(struct api_server *api) {
    uint8_t digest[HASH_SHA256_BYTES];
    uint64_t value;
    api->random[1]++;
    hash_sha256(api->random, sizeof api->random, NULL, 0, digest);
    memcpy(&value, digest, sizeof value);
    return value;
}

bool api_server_check_model(const struct api_server *api, const struct api_params *params, struct api_fault *fault) {
    if (!params->model) return true;
    for (int i = 0; i < api->options.n_model_names; i++)
        if (strlen(api->options.model_names[i]) == params->n_model &&
            memcmp(api->options.model_names[i], params->model, params->n_model) == 0)
            return true;
    return api_fault_set(fault, 404, "model_not_found", "model", "the model '%.200s' does not exist here; '%s' does",
                         params->model, api->options.model_names[0]);
}

/* ---- the loop's side of the engine ---- */

static void take_results(struct api_server *api) {
    struct tokenize_result result;
    do {
        while (ring_pop(&api->worker->results, &result))
            if (result.prompt_idx == TOKENIZE_READY)
                api_gate_enter(result.call);
            else
                api_call_on_failure(result.call, result.prompt_idx);
    } while (!ring_arm(&api->worker->results));
}

static void take_events(struct api_server *api) {
    struct ring *outbox = engine_outbox(api->engine);
    struct event event;
    do {
        while (ring_pop(outbox, &event)) api_call_on_event(&event);
    } while (!ring_arm(outbox));
}

static void on_results(void *owner) {
    struct api_server *api = owner;
    ring_disarm(&api->worker->results);
    take_results(api);
}

static void on_events(void *owner) {
    struct api_server *api = owner;
    ring_disarm(engine_outbox(api->engine));
    take_events(api);
}

/* For those who watch; once a second. */
static void sample_engine(struct api_server *api) {
    int64_t now_ns = clock_now_ns();
    if (!live_history_is_due(&api->dashboard->live, now_ns)) return;
    struct engine_stats stats = engine_read_stats(api->engine);
    api_dashboard_sample(api, &stats, now_ns);
    diagnosis_sample(api->diagnosis, &stats, now_ns);
}

static void on_tick(void *owner) {
    struct api_server *api = owner;
    for (struct api_call *call = api->calls, *next; call; call = next) {
        next = call->next;
        api_call_tick(call);
    }
    if (api->cache) app_cache_tick(api->cache);
    sample_engine(api);
    if (api->state != API_DRAINING) return;
    if (api->n_calls == 0 && http_server_n_exchanges(api->http) == 0) {
        http_server_stop(api->http);
    } else if (clock_now_ns() > api->drain_deadline_ns) {
        for (struct api_call *call = api->calls; call; call = call->next) api_call_cancel(call);
        api->drain_deadline_ns += 1000000000; /* then the loop ends with whatever is left */
        if (api->n_calls == 0) http_server_stop(api->http);
    }
}

enum status api_server_open(struct api_server *api, struct engine *engine, const struct tokenizer *tokenizer,
                            const struct chat_template *chat_template, const char *chat_fault,
                            struct answer_rules answer_rules, struct status_note *note) {
    api->engine = engine;
    api->tokenizer = tokenizer;
    api->chat_template = chat_template;
    api->chat_fault = chat_fault;
    api->answer_rules = answer_rules;
    request_metrics_init(&api->metrics, engine_max_context(engine));
    memcpy(api->metrics.slo.target_ns, api->options.slo_ns, sizeof api->options.slo_ns);
    api->worker = mem_alloc_lines(sizeof *api->worker);
    enum status status = api->worker ? STATUS_OK : STATUS_NOMEM;
    if (!status && (status = tokenize_worker_start(api->worker, api, api->options.max_calls)) != STATUS_OK) {
        mem_free(api->worker); /* nothing runs that could be stopped */
        api->worker = NULL;
    }
    if (!status) status = http_server_watch(api->http, api->worker->results.event_fd, on_results, api);
    if (!status) status = http_server_watch(api->http, engine_outbox(engine)->event_fd, on_events, api);
    if (!status) status = http_server_every(api->http, TICK_MS, on_tick, api);
    if (status) return status_fail(note, status, "cannot start the API's threads");
    take_results(api); /* arms both rings */
    take_events(api);
    api->state = API_SERVING;
    return STATUS_OK;
}

void api_server_drain(struct api_server *api) {
    if (api->state == API_DRAINING) {
        http_server_stop(api->http); /* asked a second time: at once */
        return;
    }
    if (api->state == API_LOADING) http_server_stop(api->http);
    api->state = API_DRAINING;
    api->drain_deadline_ns = clock_now_ns() + (int64_t)api->options.drain_s * 1000000000;
}

/* ---- requests ---- */

/* Open without a key: what probes, tools and browsers' preflights ask first. */
static bool is_open(const char *method, const char *path) {
    return strcmp(path, "/health") == 0 || strcmp(path, "/ping") == 0 || strcmp(path, "/openapi.json") == 0 ||
           strcmp(method, "OPTIONS") == 0;
}

static void allow_origin(const struct api_server *api, struct http_exchange *exchange) {
    if (!api->options.cors_origin) return;
    http_exchange_set_header(exchange, "Access-Control-Allow-Origin", api->options.cors_origin);
    http_exchange_set_header(exchange, "Access-Control-Expose-Headers",
                             "X-Request-Id, Server-Timing, Retry-After, X-Kvick-Ttft-Estimate-Ms");
    http_exchange_set_header(exchange, "Vary", "Origin");
}

static void reply_preflight(const struct http_route *routes, int n_routes, struct http_exchange *exchange) {
    char methods[64];
    const char *headers = http_exchange_header(exchange, "Access-Control-Request-Headers");
    http_routes_allowed(routes, n_routes, http_exchange_path(exchange), methods, sizeof methods);
    http_exchange_set_header(exchange, "Access-Control-Allow-Methods", methods);
    if (headers) http_exchange_set_header(exchange, "Access-Control-Allow-Headers", headers);
    http_exchange_set_header(exchange, "Access-Control-Max-Age", "600");
    http_exchange_reply(exchange, 204, NULL, "", 0);
}

/* Holds nothing of anybody: a browser that goes there cannot send a key. */
static bool is_page(const char *path) {
    return strcmp(path, API_DASHBOARD_PAGE_PATH) == 0;
}

/* Whether path is answered at the door that the request came in by, for who it is. */
static bool check_door(const struct api_server *api, const char *path, int key_idx, bool is_admin_door,
                       struct api_fault *fault) {
    if (is_admin_door && strncmp(path, "/v1/", 4) == 0 && strcmp(path, API_DASHBOARD_CHAT_PATH) != 0)
        return api_fault_set(fault, 404, "not_found", NULL, "%.200s is not answered on the port for administration",
                             path);
    if (is_admin_door || !api_admin_is_path(path)) return true;
    if (api->options.admin_port)
        return api_fault_set(fault, 404, "not_found", NULL, "%.200s is answered on the port for administration", path);
    if (is_page(path) || api_auth_is_admin(&api->auth, key_idx)) return true;
    return api_fault_set(fault, 403, "insufficient_permissions", NULL, "%.200s shows what other keys do", path);
}

/* Computes tokens. */
static bool is_costly(const struct http_route *route) {
    static const char *const free_ends[] = {"/render", "/count_tokens", "/estimate"};
    size_t n = strlen(route->path);
    for (size_t i = 0; i < sizeof free_ends / sizeof free_ends[0]; i++) {
        size_t n_end = strlen(free_ends[i]);
        if (n >= n_end && strcmp(route->path + n - n_end, free_ends[i]) == 0) return false;
    }
    return strcmp(route->method, "POST") == 0 && strncmp(route->path, "/v1/", 4) == 0;
}

static bool check_who(const struct api_server *api, struct http_exchange *exchange, struct api_fault *fault) {
    const char *method = http_exchange_method(exchange), *path = http_exchange_path(exchange);
    int admin_port = api->options.admin_port, key_idx = -1;
    bool is_admin_door = admin_port && http_exchange_local_port(exchange) == admin_port;
    bool needs_key = (!is_admin_door || strcmp(path, API_DASHBOARD_CHAT_PATH) == 0) && !is_page(path);
    if (is_open(method, path)) return true;
    return (!needs_key || api_auth_check(&api->auth, exchange, &key_idx, fault)) &&
           check_door(api, path, key_idx, is_admin_door, fault);
}

static bool check_rate(const struct api_server *api, const struct http_exchange *exchange,
                       const struct http_route *route, struct api_fault *fault) {
    int key_idx;
    if (!is_costly(route) || api->options.moves_over_cap) return true;
    return api_auth_check(&api->auth, exchange, &key_idx, fault) &&
           api_auth_check_rate(&api->auth, key_idx, clock_now_ns(), fault);
}

static enum api_shape shape_of(const char *path) {
    return strncmp(path, "/v1/messages", 12) == 0 ? API_ANTHROPIC : API_OPENAI;
}

/* What can be said without the body. False: fault is set. */
static bool check_head(const struct api_server *api, struct http_exchange *exchange, enum http_match match,
                       const struct http_route *route, const char *allowed, struct api_fault *fault) {
    const char *method = http_exchange_method(exchange), *path = http_exchange_path(exchange);
    if (!check_who(api, exchange, fault)) return false;
    if (match == HTTP_MATCH_NO_PATH)
        return api_fault_set(fault, 404, "not_found", NULL, "there is nothing at %.200s", path);
    if (match == HTTP_MATCH_NO_METHOD) {
        http_exchange_set_header(exchange, "Allow", allowed);
        return api_fault_set(fault, 405, "method_not_allowed", NULL, "%.200s takes %s, not %s", path, allowed, method);
    }
    if (api->state == API_SERVING || is_open(method, path) || is_page(path))
        return check_rate(api, exchange, route, fault);
    api_fault_set(fault, 503, "not_ready", NULL, "the server is %s",
                  api->state == API_LOADING ? "loading its model" : "shutting down");
    fault->retry_after_s = 1;
    return false;
}

/* The table that knows the path, clients' or operators'; the former if none does. */
static enum http_match find_route(const char *method, const char *path, const struct http_route **out_routes,
                                  int *out_n_routes, const struct http_route **out_route, const char **out_parameter) {
    *out_routes = api_admin_table(out_n_routes);
    enum http_match match = http_routes_find(*out_routes, *out_n_routes, method, path, out_route, out_parameter);
    if (match != HTTP_MATCH_NO_PATH) return match;
    *out_routes = api_routes_table(out_n_routes);
    return http_routes_find(*out_routes, *out_n_routes, method, path, out_route, out_parameter);
}

static bool on_head(void *owner, struct http_exchange *exchange) {
    const struct api_server *api = owner;
    const char *method = http_exchange_method(exchange), *path = http_exchange_path(exchange), *parameter;
    const struct http_route *route = NULL;
    struct api_fault fault = {0};
    char allowed[64];
    int n_routes;
    const struct http_route *routes;
    enum http_match match = find_route(method, path, &routes, &n_routes, &route, &parameter);
    allow_origin(api, exchange);
    if (match != HTTP_MATCH_NO_PATH && strcmp(method, "OPTIONS") == 0) {
        reply_preflight(routes, n_routes, exchange);
        return false;
    }
    http_routes_allowed(routes, n_routes, path, allowed, sizeof allowed);
    if (check_head(api, exchange, match, route, allowed, &fault)) return true;
    api_fault_reply(&fault, shape_of(path), exchange);
    return false;
}

static void on_request(void *owner, struct http_exchange *exchange) {
    const struct http_route *route = NULL, *routes;
    const char *parameter;
    int n_routes;
    if (find_route(http_exchange_method(exchange), http_exchange_path(exchange), &routes, &n_routes, &route,
                   &parameter) != HTTP_MATCH_FOUND)
        BUG("a request without a route came through on_head");
    route->handle(owner, exchange, parameter);
}

static void on_refuse(void *owner, struct http_exchange *exchange, int code, const char *why) {
    struct api_fault fault;
    allow_origin(owner, exchange);
    api_fault_set(&fault, code, NULL, NULL, "%s", why);
    if (code == 503) fault.retry_after_s = 1;
    api_fault_reply(&fault, shape_of(http_exchange_path(exchange)), exchange);
}

struct http_handlers api_server_handlers(struct api_server *api) {
    return (struct http_handlers){.head = on_head, .request = on_request, .refuse = on_refuse, .owner = api};
}
