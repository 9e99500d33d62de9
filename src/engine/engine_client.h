/* engine_client: the one way to ask the engine: submit, wait for events, cancel. run, eval, bench and the API use it.
 *
 * Thread: submit and cancel from any thread, wait from one. */
#ifndef KVICK_ENGINE_ENGINE_CLIENT_H
#define KVICK_ENGINE_ENGINE_CLIENT_H

#include "engine/engine.h"

/* A request with its tokens, prompt copied in; the rest is zero and may be filled before submit. NULL: no memory. */
WARN_UNUSED struct request *engine_client_make(const uint32_t *prompt, int n_prompt, int max_new);
WARN_UNUSED struct request *engine_client_make_choices(const uint32_t *prompt, int n_prompt, int max_new,
                                                       int n_choices);
void engine_client_free(struct request **request);

/* The tokens of a choice behind the prompt: as many as its events told of, all of them when the request is home. */
const uint32_t *engine_client_answer(const struct request *request, int choice);

/* Gives the request away until its last event; its stats may hold the parts before. Errors: STATUS_BUSY when the inbox
 * is full; the request is still the caller's then. */
WARN_UNUSED enum status engine_client_submit(struct engine *engine, struct request *request);

/* Likewise, but it is only asked what would be told (COMMAND_ASK); nothing is computed. */
WARN_UNUSED enum status engine_client_ask(struct engine *engine, struct request *request);

/* The next event, or false after timeout_ms (-1: wait for ever). */
bool engine_client_wait(struct engine *engine, int timeout_ms, struct event *out_event);

/* So many more of the request's tokens have reached their reader (see max_unread). Thread: any, until FINISHED. */
void engine_client_acknowledge(struct request *request, int n_tokens);

/* What is known of a request that is out, as of the engine's last step. Thread: any, until FINISHED. */
void engine_client_look(const struct request *request, struct phase_stats *out_stats);

/* Seen by the engine between two layers. Late or unknown ids do nothing. Errors: STATUS_BUSY. */
WARN_UNUSED enum status engine_client_cancel(struct engine *engine, uint64_t request_id);

/* Has the engine fill the map; map->state tells when it has. It must not be asked for already. Errors: STATUS_BUSY. */
WARN_UNUSED enum status engine_client_ask_map(struct engine *engine, struct block_map *map);

/* Whether prompts are run in chunks and steps bounded in time, or each prompt in one step, as far as max_chunk goes. No
 * answer changes by it. Errors: STATUS_BUSY. */
WARN_UNUSED enum status engine_client_set_chunked(struct engine *engine, bool is_chunked);

/* Submits and waits until the request is home again; for callers with one request at a time.
 * Errors: as refused (request->note tells), or STATUS_BUSY. */
WARN_UNUSED enum status engine_client_run(struct engine *engine, struct request *request);

#endif
