/* engine_client: the one way to ask the engine: submit, wait for events, cancel. run, eval, bench and the API use it.
 *
 * Thread: submit and cancel from any thread, wait from one. */
#ifndef KVICK_ENGINE_ENGINE_CLIENT_H
#define KVICK_ENGINE_ENGINE_CLIENT_H

#include "engine/engine.h"

/* A request with its tokens, prompt copied in; the rest is zero and may be filled before submit. NULL: no memory. */
WARN_UNUSED struct request *engine_client_make(const uint32_t *prompt, int n_prompt, int max_new);
void engine_client_free(struct request **request);

/* Gives the request away until its last event. Errors: STATUS_BUSY when the inbox is full; the request is still the
 * caller's then. */
WARN_UNUSED enum status engine_client_submit(struct engine *engine, struct request *request);

/* The next event, or false after timeout_ms (-1: wait for ever). */
bool engine_client_wait(struct engine *engine, int timeout_ms, struct event *out_event);

/* Late or unknown ids do nothing. Errors: STATUS_BUSY. */
WARN_UNUSED enum status engine_client_cancel(struct engine *engine, uint64_t request_id);

/* Submits and waits until the request is home again; for callers with one request at a time.
 * Errors: as refused (request->note tells), or STATUS_BUSY. */
WARN_UNUSED enum status engine_client_run(struct engine *engine, struct request *request);

#endif
