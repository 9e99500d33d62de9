#include "engine/engine_client.h"

#include <limits.h>
#include <stdatomic.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"

struct request *engine_client_make(const uint32_t *prompt, int n_prompt, int max_new) {
    return engine_client_make_choices(prompt, n_prompt, max_new, 1);
}

struct request *engine_client_make_choices(const uint32_t *prompt, int n_prompt, int max_new, int n_choices) {
    if (n_prompt < 0 || max_new < 0 || n_prompt > INT_MAX - max_new) return NULL;
    if (n_choices < 1 || n_choices > REQUEST_MAX_CHOICES) return NULL;
    size_t n_tokens = (size_t)n_prompt + (size_t)max_new;
    struct request *request = mem_alloc(sizeof *request);
    uint32_t *tokens = mem_alloc_array(n_tokens * (size_t)n_choices + 1, sizeof *tokens);
    if (!request || !tokens) {
        mem_free(request);
        mem_free(tokens);
        return NULL;
    }
    for (int i = 0; n_prompt && i < n_choices; i++)
        memcpy(tokens + (size_t)i * n_tokens, prompt, (size_t)n_prompt * sizeof *tokens);
    *request = (struct request){.tokens = tokens,
                                .n_prompt = n_prompt,
                                .max_new = max_new,
                                .n_choices = n_choices,
                                .has_cache = true,
                                .sampling = {.top_p = 1}};
    return request;
}

const uint32_t *engine_client_answer(const struct request *request, int choice) {
    return message_tokens(request, (uint32_t)choice) + request->n_prompt;
}

void engine_client_free(struct request **request) {
    if (!*request) return;
    mem_free((*request)->tokens);
    mem_free(*request);
    *request = NULL;
}

static enum status send(struct engine *engine, struct request *request, enum command_kind kind) {
    static atomic_uint_least64_t last_id; /* relaxed: ids only have to differ */
    request->id = atomic_fetch_add_explicit(&last_id, 1, memory_order_relaxed) + 1;
    struct phase_stats before = request->stats;
    request->stats = (struct phase_stats){.received_ns = before.received_ns, .open = PHASE_QUEUE};
    for (int i = 0; i < PHASE_QUEUE; i++) request->stats.part_ns[i] = before.part_ns[i];
    request->stats.submitted_ns = request->stats.open_ns = clock_now_ns();
    request->n_told = 0;
    request->is_forked = false;
    request->last_step = -1;
    atomic_store_explicit(&request->n_read, 0, memory_order_relaxed);
    message_show(request);
    struct command_message message = {.kind = kind, .request = request};
    /* Counted before it is there, so that nobody ever sees more read than sent. */
    engine_count_sent(engine, 1);
    if (ring_push(engine_inbox(engine), &message) == STATUS_OK) return STATUS_OK;
    engine_count_sent(engine, -1);
    return STATUS_BUSY;
}

enum status engine_client_submit(struct engine *engine, struct request *request) {
    return send(engine, request, COMMAND_SUBMIT);
}

enum status engine_client_ask(struct engine *engine, struct request *request) {
    return send(engine, request, COMMAND_ASK);
}

bool engine_client_wait(struct engine *engine, int timeout_ms, struct event *out_event) {
    struct ring *outbox = engine_outbox(engine);
    return ring_pop(outbox, out_event) || (ring_wait(outbox, timeout_ms) && ring_pop(outbox, out_event));
}

void engine_client_acknowledge(struct request *request, int n_tokens) {
    atomic_fetch_add_explicit(&request->n_read, n_tokens, memory_order_relaxed);
}

void engine_client_look(const struct request *request, struct phase_stats *out_stats) {
    seqlock_read(&request->shown_lock, request->shown, out_stats, sizeof *out_stats);
}

enum status engine_client_cancel(struct engine *engine, uint64_t request_id) {
    struct command_message message = {.kind = COMMAND_CANCEL, .request_id = request_id};
    return ring_push(engine_inbox(engine), &message) ? STATUS_BUSY : STATUS_OK;
}

enum status engine_client_ask_map(struct engine *engine, struct block_map *map) {
    struct command_message message = {.kind = COMMAND_MAP, .map = map};
    atomic_store_explicit(&map->state, BLOCK_MAP_ASKED, memory_order_relaxed); /* the ring publishes it */
    if (ring_push(engine_inbox(engine), &message) == STATUS_OK) return STATUS_OK;
    atomic_store_explicit(&map->state, BLOCK_MAP_EMPTY, memory_order_relaxed);
    return STATUS_BUSY;
}

enum status engine_client_set_chunked(struct engine *engine, bool is_chunked) {
    struct command_message message = {.kind = COMMAND_CHUNK, .is_chunked = is_chunked};
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
