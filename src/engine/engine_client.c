#include "engine/engine_client.h"

#include <limits.h>
#include <stdatomic.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"

struct request *engine_client_make(const uint32_t *prompt, int n_prompt, int max_new) {
    if (n_prompt < 0 || max_new < 0 || n_prompt > INT_MAX - max_new) return NULL;
    struct request *request = mem_alloc(sizeof *request);
    uint32_t *tokens = mem_alloc_array((size_t)n_prompt + (size_t)max_new + 1, sizeof *tokens);
    if (!request || !tokens) {
        mem_free(request);
        mem_free(tokens);
        return NULL;
    }
    if (n_prompt) memcpy(tokens, prompt, (size_t)n_prompt * sizeof *tokens);
    *request = (struct request){
        .tokens = tokens, .n_prompt = n_prompt, .max_new = max_new, .has_cache = true, .sampling = {.top_p = 1}};
    return request;
}

void engine_client_free(struct request **request) {
    if (!*request) return;
    mem_free((*request)->tokens);
    mem_free(*request);
    *request = NULL;
}

enum status engine_client_submit(struct engine *engine, struct request *request) {
    static atomic_uint_least64_t last_id; /* relaxed: ids only have to differ */
    request->id = atomic_fetch_add_explicit(&last_id, 1, memory_order_relaxed) + 1;
    request->stats = (struct phase_stats){.submitted_ns = clock_now_ns()};
    struct command_message message = {.kind = COMMAND_SUBMIT, .request = request};
    return ring_push(engine_inbox(engine), &message) ? STATUS_BUSY : STATUS_OK;
}

bool engine_client_wait(struct engine *engine, int timeout_ms, struct event *out_event) {
    struct ring *outbox = engine_outbox(engine);
    return ring_pop(outbox, out_event) || (ring_wait(outbox, timeout_ms) && ring_pop(outbox, out_event));
}

enum status engine_client_cancel(struct engine *engine, uint64_t request_id) {
    struct command_message message = {.kind = COMMAND_CANCEL, .request_id = request_id};
    return ring_push(engine_inbox(engine), &message) ? STATUS_BUSY : STATUS_OK;
}

enum status engine_client_run(struct engine *engine, struct request *request) {
    struct event event;
    enum status status = engine_client_submit(engine, request);
    if (status) return status;
    do engine_client_wait(engine, -1, &event);
    while (event.kind != EVENT_REFUSED && event.kind != EVENT_FINISHED);
    return event.kind == EVENT_REFUSED ? event.status : STATUS_OK;
}
