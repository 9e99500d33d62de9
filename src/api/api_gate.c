#include "api/api_gate.h"

#include "api/app_cache.h"
#include "api/pre_hook.h"
#include "api/tokenize_worker.h"

static bool wants_hook(const struct api_call *call) {
    return call->api->hook && !call->is_cleared;
}

bool api_gate_wants(const struct api_call *call) {
    return !call->is_estimate && (wants_hook(call) || call->api->cache);
}

/* True: the client has gone, and the call with it. */
static bool is_gone(struct api_call *call) {
    if (!atomic_load_explicit(&call->is_gone, memory_order_relaxed)) return false;
    api_fault_set(&call->fault, 499, NULL, NULL, "the client is gone");
    api_gate_end(call);
    return true;
}

void api_gate_end(struct api_call *call) {
    api_call_on_failure(call, -1);
}

void api_gate_enter(struct api_call *call) {
    if (is_gone(call)) return;
    if (wants_hook(call))
        pre_hook_ask(call->api->hook, call);
    else
        api_gate_after_hook(call);
}

void api_gate_after_hook(struct api_call *call) {
    call->is_cleared = true;
    if (is_gone(call)) return;
    if (call->api->cache && app_cache_look(call->api->cache, call)) return;
    api_gate_after_cache(call);
}

void api_gate_after_cache(struct api_call *call) {
    if (!is_gone(call)) tokenize_worker_submit(call->api->worker, call);
}
