/* api_server: what all requests of the API share, and the loop's side of the engine.
 *
 * Threads: io (the event loop; everything here unless said otherwise), tokenize (tokenize_worker), engine.
 * Memory: max_calls calls at a time; later ones are refused with 429. */
#ifndef KVICK_API_API_SERVER_H
#define KVICK_API_API_SERVER_H

#include "api/api_auth.h"
#include "api/api_history.h"
#include "api/tokenize_worker.h"
#include "base/log.h"
#include "chat/answer_parse.h"
#include "chat/chat_template.h"
#include "engine/engine_client.h"
#include "http/http_server.h"
#include "observe/diagnosis.h"
#include "observe/request_metrics.h"
#include "tokenizer/tokenizer.h"

struct api_call;
struct api_dashboard;
struct api_params;
struct app_cache;
struct pre_hook;

enum api_state { API_LOADING, API_SERVING, API_DRAINING };

struct api_options {
    const char *const *model_names; /* [n_model_names], the first one is told to clients */
    int n_model_names;
    int max_calls;              /* at a time, waiting ones included */
    int drain_s;                /* how long running answers may go on after a stop */
    const char *cors_origin;    /* NULL: no other site's page may read replies */
    bool logs_requests;         /* a line per request on standard error */
    bool logs_diagnosis;        /* what is wrong, there, too */
    enum log_format log_format; /* of it */
    const char *kv_dtype;
    int block_tokens;
    bool has_prefix_cache;
    bool returns_phases;          /* in every usage, not only on request */
    const char *context_bound_by; /* "option", "memory" or "model" */
    /* The first one is the deadline of requests without their own; 0: none. */
    int64_t slo_ns[REQUEST_N_CLASSES][SLO_N_KINDS];
    bool moves_over_cap;         /* an interactive request beyond its limits runs as batch instead of being refused */
    int admin_port;              /* /metrics is answered there alone, and without a key; 0: on every port */
    bool is_demo;                /* the dashboard may have prompts run unchunked */
    double peak_gops, read_gb_s; /* what the machine can do, for the dashboard; 0: not measured */
    bool is_read_guessed;
};

struct api_server {
    struct api_options options;
    struct http_server *http;
    struct engine *engine; /* NULL while loading */
    const struct tokenizer *tokenizer;
    const struct chat_template *chat_template; /* NULL: the model cannot chat */
    const char *chat_fault;                    /* why not */
    struct answer_rules answer_rules;          /* how the model says what is no text */
    struct api_auth auth;
    struct tokenize_worker *worker;
    struct pre_hook *hook;               /* NULL: none; the server's own */
    struct app_cache *cache;             /* likewise */
    struct grammar_vocab *grammar_vocab; /* the worker's; NULL until a request demands a form */
    enum api_state state;
    int64_t drain_deadline_ns;
    int64_t started_s;   /* wall clock */
    uint64_t random[2];  /* for ids and seeds */
    uint64_t n_requests; /* ever */
    int n_calls;
    struct request_metrics metrics;
    struct api_history history;
    struct api_dashboard *dashboard;
    struct diagnosis *diagnosis;
    struct api_call *calls; /* all that are open */
};

WARN_UNUSED enum status api_server_init(struct api_server *api, const struct api_options *options,
                                        struct status_note *note);

/* First: nothing more goes to the engine. Last, when loop and engine are gone: frees what was still open. */
void api_server_close(struct api_server *api);
void api_server_deinit(struct api_server *api);

/* The model is there: from now on /health is 200. Borrowed until deinit. */
WARN_UNUSED enum status api_server_open(struct api_server *api, struct engine *engine,
                                        const struct tokenizer *tokenizer, const struct chat_template *chat_template,
                                        const char *chat_fault, struct answer_rules answer_rules,
                                        struct status_note *note);

/* The server's handlers. Key, route and state are looked at before a body is read. */
struct http_handlers api_server_handlers(struct api_server *api);

/* No new requests; the loop ends when the running ones have ended or drain_s have passed. */
void api_server_drain(struct api_server *api);

/* 64 bits that no client can guess. */
uint64_t api_server_random(struct api_server *api);

/* The request names no model or one that is served here. False: fault is set. */
WARN_UNUSED bool api_server_check_model(const struct api_server *api, const struct api_params *params,
                                        struct api_fault *fault);

#endif
