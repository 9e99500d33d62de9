/* api_history: where the time of a request went or goes, for those who ask later: GET /v1/requests/{id}.
 *
 * A request runs, or its prompts are among the last API_HISTORY_MAX that ended; older ones are forgotten. Never a text.
 * Thread: io.   Memory: fixed at init. */
#ifndef KVICK_API_API_HISTORY_H
#define KVICK_API_API_HISTORY_H

#include "api/api_key.h"
#include "engine/phase_stats.h"
#include "http/http_exchange.h"
#include "observe/request_metrics.h"

#define API_HISTORY_MAX 10000
#define API_MAX_ID_BYTES 160

struct api_call;
struct api_server;

/* One prompt of a request that ended. */
struct api_record {
    char id[API_MAX_ID_BYTES]; /* of the request; "": none */
    char path[64];
    int key_idx, http_code;
    int prompt_idx;
    bool was_run; /* it reached the engine */
    enum request_end end;
    int n_completion; /* tokens */
    int64_t created_s;
    int64_t received_ns, ended_ns;
    uint64_t request_id;                   /* the engine's */
    char key_name[API_KEY_MAX_NAME_BYTES]; /* "": no key */
    enum request_class class_;
    struct phase_stats stats;
};

struct api_history {
    struct api_record *records; /* [API_HISTORY_MAX], a ring */
    int next;
    int64_t n_ever;
};

/* Errors: STATUS_NOMEM. */
WARN_UNUSED enum status api_history_init(struct api_history *history);
void api_history_deinit(struct api_history *history);

/* The call's prompts are home: its line in the log, its part in the metrics, its place here. */
void api_history_note(struct api_call *call);

/* The reply to who asks for a request by its id; ends the exchange. Another key's request is not there for him. */
void api_history_reply(const struct api_server *api, struct http_exchange *exchange, const char *id);

#endif
