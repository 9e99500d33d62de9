#include "bench/workload.h"

#include <stdio.h>

#include "base/mem.h"

#define MAX_REQUESTS 64
#define MIN_CONTEXT 512
#define TEMPLATE_TOKENS 64 /* of the context: what a chat template puts around the turns */

const char *workload_name(enum workload_kind kind) {
    static const char *const names[] = {
#define XX(name, what) #name,
        WORKLOAD_MAP(XX)
#undef XX
    };
    return names[kind];
}

static struct trace_request *add(struct trace *trace, const char *label, double arrival_ms, int n_prompt,
                                 int n_output) {
    REQUIRE(trace->n_requests < MAX_REQUESTS);
    struct trace_request *request = &trace->requests[trace->n_requests++];
    *request = (struct trace_request){
        .after = -1, .arrival_ms = arrival_ms, .n_own = n_prompt, .n_prompt = n_prompt, .n_output = n_output};
    snprintf(request->label, sizeof request->label, "%s", label);
    return request;
}

/* Behind the one added last, after pause_ms. */
static void add_turn(struct trace *trace, const char *label, double pause_ms, int n_own, int n_output) {
    const struct trace_request before = trace->requests[trace->n_requests - 1];
    struct trace_request *turn = add(trace, label, pause_ms, n_own, n_output);
    turn->after = trace->n_requests - 2;
    turn->n_prompt += before.n_prompt + before.n_output;
}

static void make_lengths(struct trace *trace, int longest) {
    for (int i = 0; i < 4; i++) {
        add(trace, "short", 0, 64, 32);
        add(trace, "middle", 0, longest / 4, 32);
        add(trace, "long", 0, longest, 32);
    }
}

static void make_prefixes(struct trace *trace, int longest, bool is_shared) {
    for (int i = 0; i < 12; i++) {
        struct trace_request *request = add(trace, i == 0 ? "first" : "later", 0, longest / 2, 16);
        if (is_shared) request->n_shared = longest / 2 - 32;
    }
}

static void make_interference(struct trace *trace, int longest) {
    for (int i = 0; i < 4; i++) add(trace, "stream", 0, 32, 192);
    for (int i = 0; i < 3; i++) add(trace, "whale", 300 * (i + 1), longest, 4);
}

static void make_turns(struct trace *trace, int longest, const char *label, int n_own, int n_output) {
    int n_turn = n_own + n_output;
    for (int talk = 0; talk < 4; talk++) {
        add(trace, "first turn", 0, n_own, n_output);
        for (int at = 2 * n_turn; at < longest && at <= 6 * n_turn; at += n_turn)
            add_turn(trace, label, 50, n_own, n_output);
    }
}

static void make_storm(struct trace *trace, int longest) {
    for (int i = 0; i < 8; i++) {
        struct trace_request *request = add(trace, "storm", 0, longest, 8);
        snprintf(request->tenant, sizeof request->tenant, "agent");
    }
    for (int i = 0; i < 8; i++) add(trace, "short", 100 + 100 * i, 32, 16);
}

enum status workload_make(struct trace *trace, enum workload_kind kind, int max_context, struct status_note *note) {
    *trace = (struct trace){0};
    if (max_context < MIN_CONTEXT)
        return status_fail(note, STATUS_LIMIT, "a context of %d tokens is too short, %d are needed", max_context,
                           MIN_CONTEXT);
    trace->requests = mem_alloc_array(MAX_REQUESTS, sizeof *trace->requests);
    if (!trace->requests) return status_fail(note, STATUS_NOMEM, "no memory for a workload");
    snprintf(trace->name, sizeof trace->name, "%s", workload_name(kind));
    int longest = (max_context < 2304 ? max_context : 2304) - 2 * TEMPLATE_TOKENS - 64;
    if (kind == WORKLOAD_length)
        make_lengths(trace, longest);
    else if (kind == WORKLOAD_prefix || kind == WORKLOAD_unique)
        make_prefixes(trace, longest, kind == WORKLOAD_prefix);
    else if (kind == WORKLOAD_interference)
        make_interference(trace, longest);
    else if (kind == WORKLOAD_turns)
        make_turns(trace, longest, "later turns", longest / 16, 32);
    else if (kind == WORKLOAD_agents)
        make_turns(trace, longest, "after tools", longest / 8, 8);
    else
        make_storm(trace, longest);
    for (int i = 0; i < trace->n_requests; i++) {
        int n = trace->requests[i].n_prompt + trace->requests[i].n_output;
        if (n > trace->max_context) trace->max_context = n;
    }
    return STATUS_OK;
}
