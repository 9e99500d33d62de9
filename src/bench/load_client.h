/* load_client: asks any OpenAI-compatible server for streamed answers, many at a time, and stamps what comes.
 *
 * Thread: one owner, which runs it.   Memory: max_streams at most, and what their answers take. */
#ifndef KVICK_BENCH_LOAD_CLIENT_H
#define KVICK_BENCH_LOAD_CLIENT_H

#include "bench/load_answer.h"
#include "http/http_client.h"

#define LOAD_CLIENT_MAX_URL_BYTES 512
#define LOAD_CLIENT_MAX_NAME_BYTES 256

enum load_endpoint { LOAD_CHAT, LOAD_COMPLETION };

/* Which server, and what it understands; load_target.h finds out. */
struct load_target {
    char url[LOAD_CLIENT_MAX_URL_BYTES]; /* up to and with /v1, without a slash behind */
    char model[LOAD_CLIENT_MAX_NAME_BYTES];
    const char *api_key; /* NULL: none; borrowed */
    enum load_endpoint endpoint;
    bool takes_extras; /* ignore_eos and what kvick and vLLM have beside it */
    bool takes_usage;  /* stream_options.include_usage */
    bool is_kvick;     /* it told its phases */
    int max_context;   /* tokens; 0: it does not say */
};

struct load_turn {
    const char *role, *text;
};

struct load_ask {
    const struct load_turn *turns; /* [n_turns]; completions get the texts one behind the other */
    int n_turns;
    const uint32_t *ids; /* [n_ids] in place of turns, for completions of servers that take ids; NULL: turns */
    int n_ids;
    int max_tokens; /* of the answer, which is that long unless the server insists on ending it */
    bool wants_ids; /* of the answer, from servers with extras */
    bool is_batch;  /* of the lower class, for servers with extras */
    int timeout_ms;
};

struct load_client;

/* Called from load_client_run when an answer has ended in whatever way. A new one may be begun from it. */
typedef void load_end_fn(void *owner, struct load_answer *answer);

/* target: borrowed, may change between requests. Errors: STATUS_NOMEM, STATUS_IO, with a note. */
WARN_UNUSED enum status load_client_create(struct load_client **out_client, const struct load_target *target,
                                           int max_streams, struct status_note *note);

/* Answers under way are left as they are; on_end is not called. */
void load_client_destroy(struct load_client **client);

/* Sends; answer (cleared first) is filled until on_end. What ask points to is not needed afterwards.
 * Errors: STATUS_BUSY with max_streams under way; STATUS_INVALID for a URL that is none; STATUS_NOMEM. */
WARN_UNUSED enum status load_client_start(struct load_client *client, const struct load_ask *ask,
                                          struct load_answer *answer, load_end_fn *on_end, void *owner,
                                          struct status_note *note);

/* The client leaves: the answer ends as CANCELLED at once, on_end is not called. No effect if it has ended. */
void load_client_cancel(struct load_client *client, struct load_answer *answer);

/* Waits at most timeout_ms for something to come. Returns how many are under way. */
int load_client_run(struct load_client *client, int timeout_ms);

/* One from start to end; others are served meanwhile. Errors: those of start. */
WARN_UNUSED enum status load_client_ask(struct load_client *client, const struct load_ask *ask,
                                        struct load_answer *answer, struct status_note *note);

/* A whole reply of the same server, JSON or not. path: behind the target's url without "/v1", such as "/v1/models";
 * body NULL: GET. Errors: those of http_client_fetch; a code that is not 200 is told by *out_code. */
WARN_UNUSED enum status load_client_fetch(struct load_client *client, const char *path, const char *body,
                                          struct str *out_body, int *out_code, struct status_note *note);

#endif
