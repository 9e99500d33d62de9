/* request_run: one small model, engines for it, and requests with parts of one prompt, for tests of what a request may
 * ask for. Functions fail the running test on error. */
#ifndef KVICK_TESTS_SUPPORT_REQUEST_RUN_H
#define KVICK_TESTS_SUPPORT_REQUEST_RUN_H

#include "engine/engine.h"
#include "engine/engine_client.h"
#include "support/exact_options.h"
#include "support/model_file.h"

#define REQUEST_RUN_MAX_CONTEXT 1024

extern uint32_t request_run_prompt[REQUEST_RUN_MAX_CONTEXT];
extern const struct exact_options request_run_plain; /* one thread, whole prompts, no cache */

/* Of the group of tests. */
int request_run_set_up(void **state);
int request_run_tear_down(void **state);

struct engine_options request_run_options(const struct exact_options *exact, int max_sequences, int kv_tokens);
struct engine *request_run_start_with(const struct exact_options *exact, int max_sequences, int kv_tokens);
struct engine *request_run_start(const struct exact_options *exact, int max_sequences);

struct request *request_run_make(int n_prompt, int max_new);

/* Submits and waits until it is home; other requests' events are dropped. */
void request_run_ask(struct engine *engine, struct request *request);

/* Reads events until the request with this id is home. */
struct event request_run_await(struct engine *engine, uint64_t id);

/* The request is refused with this status and a note that has the word; frees it. */
void request_run_expect_refusal(struct engine *engine, struct request *request, enum status status, const char *word);

/* Engines on all kinds of ways, each cold and alone, then warm and with a neighbour; a plain one first. */
typedef void request_run_way_fn(struct engine *engine, const struct exact_options *exact, bool is_first);
void request_run_every_way(request_run_way_fn *check);

#endif
