/* tokenize_worker: the thread that renders chats, makes token ids and hands requests to the engine: the last that sees
 * their text before the answer.
 *
 * Thread: io pushes calls and takes results; the worker owns a call in between (see api_call.h). */
#ifndef KVICK_API_TOKENIZE_WORKER_H
#define KVICK_API_TOKENIZE_WORKER_H

#include "api/api_params.h"
#include "base/ring.h"
#include "base/thread.h"

struct api_call;
struct api_prompt;
struct api_server;

/* A call, or one of its prompts (prompt_idx >= 0), that did not reach the engine; its fault tells why. Or a call that
 * is ready and has to pass the gate first. What reaches the engine comes back by its events. */
#define TOKENIZE_FAILED (-1)
#define TOKENIZE_READY (-2)

struct tokenize_result {
    struct api_call *call;
    int prompt_idx;
};

struct tokenize_worker {
    struct api_server *api;
    struct thread thread;
    struct ring calls;   /* struct api_call *; NULL ends the thread */
    struct ring results; /* struct tokenize_result */
};

/* max_calls: at a time. Errors: STATUS_NOMEM, STATUS_LIMIT. */
WARN_UNUSED enum status tokenize_worker_start(struct tokenize_worker *worker, struct api_server *api, int max_calls);
void tokenize_worker_stop(struct tokenize_worker *worker);

/* Gives the call away. Errors: STATUS_LIMIT. */
WARN_UNUSED enum status tokenize_worker_push(struct tokenize_worker *worker, struct api_call *call);

/* Hands a call that is ready to the engine. Thread: the worker; io when it has passed the gate. */
void tokenize_worker_submit(struct tokenize_worker *worker, struct api_call *call);

/* Fills the ids of a prompt that is text. adds_special: BOS in front where the model wants one; of a chat the template
 * decides. out_rendered_ns: NULL, or when a chat's text was there. Thread: any.
 * Errors: those of chat_prompt_encode and tokenizer_encode. */
WARN_UNUSED enum status tokenize_worker_encode(const struct api_server *api, enum api_kind kind, bool adds_special,
                                               struct api_prompt *prompt, int64_t *out_rendered_ns,
                                               struct status_note *note);

#endif
