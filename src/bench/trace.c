#include "bench/trace.h"

#include <math.h>
#include <string.h>

#include <jansson.h>

#include "base/file_map.h"
#include "base/hash.h"
#include "base/mem.h"
#include "base/rng.h"

#define VERSION 1
#define SHARED_SEED 1
#define OWN_SEED 2
#define MAX_MS 1e9
#define MAX_SHARED_ID 1000000
#define MAX_PRIORITY 1000000
#define MAX_WEIGHT 1000

struct reader {
    struct trace *trace;
    const char *at, *end;
    int line; /* of the file, from 1 */
    struct status_note *note;
};

static enum status bad(const struct reader *reader, const char *field, const char *why) {
    return status_fail(reader->note, STATUS_FORMAT, "line %d: %s: %s", reader->line, field, why);
}

/* ---- one field ---- */

static enum status read_number(const struct reader *reader, const json_t *json, const char *field, double max,
                               double *out) {
    if (!json_is_number(json)) return bad(reader, field, "is not a number");
    *out = json_number_value(json);
    if (!(*out >= 0 && *out <= max)) return bad(reader, field, "is negative or too large");
    return STATUS_OK;
}

static enum status read_int(const struct reader *reader, const json_t *json, const char *field, int min, int max,
                            int *out) {
    if (!json_is_integer(json)) return bad(reader, field, "is not a whole number");
    json_int_t value = json_integer_value(json);
    if (value < min || value > max)
        return status_fail(reader->note, STATUS_FORMAT, "line %d: %s: %lld is not within %d..%d", reader->line, field,
                           (long long)value, min, max);
    *out = (int)value;
    return STATUS_OK;
}

static enum status read_text(const struct reader *reader, const json_t *json, const char *field,
                             char out[TRACE_MAX_NAME_BYTES]) {
    if (!json_is_string(json)) return bad(reader, field, "is not a text");
    size_t n = json_string_length(json);
    if (n >= TRACE_MAX_NAME_BYTES) return bad(reader, field, "is too long");
    memcpy(out, json_string_value(json), n + 1);
    return STATUS_OK;
}

static enum status read_ids(const struct reader *reader, const json_t *json, struct trace_request *request) {
    size_t n = json_array_size(json);
    if (!json_is_array(json) || n < 1) return bad(reader, "prompt_ids", "is not an array of token ids");
    if (n > TRACE_MAX_TOKENS) return bad(reader, "prompt_ids", "has too many");
    request->ids = mem_alloc_array(n, sizeof *request->ids);
    if (!request->ids)
        return status_fail(reader->note, STATUS_NOMEM, "line %d: no memory for %zu ids", reader->line, n);
    request->n_own = (int)n;
    for (size_t i = 0; i < n; i++) {
        int id = 0;
        enum status status = read_int(reader, json_array_get(json, i), "prompt_ids", 0, INT32_MAX, &id);
        if (status) return status;
        request->ids[i] = (uint32_t)id;
    }
    return STATUS_OK;
}

static enum status read_class(const struct reader *reader, const json_t *json, enum request_class *out) {
    char text[TRACE_MAX_NAME_BYTES];
    enum status status = read_text(reader, json, "class", text);
    if (status) return status;
    if (strcmp(text, "batch") == 0)
        *out = REQUEST_BATCH;
    else if (strcmp(text, "interactive") != 0)
        return bad(reader, "class", "is neither interactive nor batch");
    return STATUS_OK;
}

static enum status read_field(const struct reader *reader, const char *key, const json_t *json,
                              struct trace_request *request) {
    if (strcmp(key, "arrival_ms") == 0) return read_number(reader, json, key, MAX_MS, &request->arrival_ms);
    if (strcmp(key, "prompt_ids") == 0) return read_ids(reader, json, request);
    if (strcmp(key, "prompt_tokens") == 0) return read_int(reader, json, key, 1, TRACE_MAX_TOKENS, &request->n_own);
    if (strcmp(key, "output_tokens") == 0) return read_int(reader, json, key, 0, TRACE_MAX_TOKENS, &request->n_output);
    if (strcmp(key, "shared_id") == 0) return read_int(reader, json, key, 0, MAX_SHARED_ID, &request->shared_id);
    if (strcmp(key, "shared_tokens") == 0) return read_int(reader, json, key, 1, TRACE_MAX_TOKENS, &request->n_shared);
    if (strcmp(key, "after") == 0)
        return read_int(reader, json, key, 0, reader->trace->n_requests - 1, &request->after);
    if (strcmp(key, "class") == 0) return read_class(reader, json, &request->class_);
    if (strcmp(key, "tenant") == 0) return read_text(reader, json, key, request->tenant);
    if (strcmp(key, "tenant_weight") == 0) return read_int(reader, json, key, 1, MAX_WEIGHT, &request->tenant_weight);
    if (strcmp(key, "priority") == 0)
        return read_int(reader, json, key, -MAX_PRIORITY, MAX_PRIORITY, &request->priority);
    if (strcmp(key, "label") == 0) return read_text(reader, json, key, request->label);
    if (strcmp(key, "cancel_ms") == 0) {
        request->has_cancel = true;
        return read_number(reader, json, key, MAX_MS, &request->cancel_ms);
    }
    bool is_factor = strcmp(key, "deadline_solo_x") == 0;
    if (!is_factor && strcmp(key, "deadline_ms") != 0) return bad(reader, key, "is not a field of a request");
    request->has_deadline = true;
    return read_number(reader, json, key, MAX_MS, is_factor ? &request->deadline_solo_x : &request->deadline_ms);
}

/* ---- a line ---- */

static enum status check_request(const struct reader *reader, const json_t *json, struct trace_request *request) {
    const struct trace *trace = reader->trace;
    static const char *const needed[] = {"arrival_ms", "output_tokens"};
    for (size_t i = 0; i < sizeof needed / sizeof needed[0]; i++)
        if (!json_object_get(json, needed[i])) return bad(reader, needed[i], "is missing");
    if (!json_object_get(json, "prompt_ids") == !json_object_get(json, "prompt_tokens"))
        return bad(reader, "prompt_tokens", "one of it and prompt_ids is needed");
    if (!json_object_get(json, "shared_id") != !json_object_get(json, "shared_tokens"))
        return bad(reader, "shared_id", "goes with shared_tokens");
    if (request->n_shared && (request->ids || request->after >= 0))
        return bad(reader, "shared_tokens", "does not go with prompt_ids or after");
    if (request->n_shared > request->n_own) return bad(reader, "shared_tokens", "is more than prompt_tokens");
    request->n_prompt = request->n_own;
    if (request->after >= 0) {
        const struct trace_request *before = &trace->requests[request->after];
        if (before->n_output == 0 && before->has_cancel)
            return bad(reader, "after", "names a request that is cancelled");
        request->n_prompt += before->n_prompt + before->n_output;
    } else {
        for (int i = trace->n_requests - 1; i >= 0; i--) {
            if (trace->requests[i].after >= 0) continue;
            if (trace->requests[i].arrival_ms > request->arrival_ms)
                return bad(reader, "arrival_ms", "is before that of an earlier line");
            break;
        }
    }
    if (request->n_prompt > TRACE_MAX_TOKENS || request->n_output > TRACE_MAX_TOKENS - request->n_prompt)
        return bad(reader, "prompt_tokens", "makes a request that is too long");
    return STATUS_OK;
}

static enum status read_request(struct reader *reader, const json_t *json) {
    struct trace *trace = reader->trace;
    struct trace_request *grown;
    const char *key;
    json_t *value;
    if (trace->n_requests == TRACE_MAX_REQUESTS)
        return status_fail(reader->note, STATUS_LIMIT, "line %d: more than %d requests", reader->line,
                           TRACE_MAX_REQUESTS);
    int n = trace->n_requests;
    if ((n & (n - 1)) == 0) { /* doubles: room for 1, 2, 4, ... */
        grown = mem_resize_array(trace->requests, n ? 2 * (size_t)n : 1, sizeof *grown);
        if (!grown) return status_fail(reader->note, STATUS_NOMEM, "no memory for %d requests", n);
        trace->requests = grown;
    }
    struct trace_request *request = &trace->requests[n];
    *request = (struct trace_request){.after = -1};
    enum status status = STATUS_OK;
    json_object_foreach((json_t *)(uintptr_t)json, key, value) {
        status = read_field(reader, key, value, request);
        if (status) break;
    }
    if (!status) status = check_request(reader, json, request);
    if (status) {
        mem_free(request->ids);
        return status;
    }
    trace->n_requests++;
    if (request->n_prompt + request->n_output > trace->max_context)
        trace->max_context = request->n_prompt + request->n_output;
    return STATUS_OK;
}

static enum status read_header(const struct reader *reader, const json_t *json) {
    const char *key;
    json_t *value;
    int version;
    if (!json_object_get(json, "kvick_trace")) return bad(reader, "kvick_trace", "is missing: this is no trace");
    json_object_foreach((json_t *)(uintptr_t)json, key, value) {
        enum status status;
        if (strcmp(key, "kvick_trace") == 0)
            status = read_int(reader, value, key, VERSION, VERSION, &version);
        else if (strcmp(key, "name") == 0)
            status = read_text(reader, value, key, reader->trace->name);
        else if (strcmp(key, "load") == 0)
            status = read_number(reader, value, key, 1000, &reader->trace->load);
        else
            status = bad(reader, key, "is not a field of the first line");
        if (status) return status;
    }
    return STATUS_OK;
}

static enum status read_line(struct reader *reader) {
    const char *start = reader->at, *newline = memchr(start, '\n', (size_t)(reader->end - start));
    size_t n_bytes = (size_t)((newline ? newline : reader->end) - start);
    json_error_t error;
    reader->line++;
    reader->at = newline ? newline + 1 : reader->end;
    if (n_bytes > TRACE_MAX_LINE_BYTES) return bad(reader, "the line", "is too long");
    json_t *json = json_loadb(start, n_bytes, JSON_REJECT_DUPLICATES, &error);
    if (!json)
        return status_fail(reader->note, STATUS_FORMAT, "line %d, column %d: %s", reader->line, error.column,
                           error.text);
    enum status status = !json_is_object(json) ? bad(reader, "the line", "is no JSON object")
                         : reader->line == 1   ? read_header(reader, json)
                                               : read_request(reader, json);
    json_decref(json);
    return status;
}

enum status trace_read(struct trace *trace, const char *path, struct status_note *note) {
    struct file_map map;
    *trace = (struct trace){0};
    enum status status = file_map_open(&map, path, note);
    if (status) return status;
    const char *text = map.n_bytes ? (const char *)map.bytes : ""; /* an empty file has no address */
    struct reader reader = {trace, text, text + map.n_bytes, 0, note};
    while (!status && reader.at < reader.end) status = read_line(&reader);
    if (!status && trace->n_requests == 0) status = status_fail(note, STATUS_FORMAT, "holds no request");
    file_map_close(&map);
    if (status) trace_deinit(trace);
    return status;
}

void trace_deinit(struct trace *trace) {
    for (int i = 0; i < trace->n_requests; i++) mem_free(trace->requests[i].ids);
    mem_free(trace->requests);
    *trace = (struct trace){0};
}

void trace_own_tokens(const struct trace *trace, int request_idx, int n_vocab, uint32_t *out) {
    const struct trace_request *request = &trace->requests[request_idx];
    for (int i = 0; i < request->n_own; i++) {
        bool is_shared = i < request->n_shared;
        uint64_t seed = is_shared ? SHARED_SEED : OWN_SEED;
        uint32_t which = (uint32_t)(is_shared ? request->shared_id : request_idx);
        out[i] = request->ids ? request->ids[i] : (uint32_t)(rng_uniform(seed, which, (uint32_t)i) * n_vocab);
    }
}

uint64_t trace_tenant_id(const struct trace_request *request) {
    uint8_t digest[HASH_SHA256_BYTES];
    uint64_t id;
    if (!request->tenant[0]) return 0;
    hash_sha256(request->tenant, strlen(request->tenant), NULL, 0, digest);
    memcpy(&id, digest, sizeof id);
    return id ? id : 1;
}

enum status trace_check_ids(const struct trace *trace, int n_vocab, struct status_note *note) {
    for (int i = 0; i < trace->n_requests; i++)
        for (int k = 0; trace->requests[i].ids && k < trace->requests[i].n_own; k++)
            if (trace->requests[i].ids[k] >= (uint32_t)n_vocab)
                return status_fail(note, STATUS_INVALID, "line %d: prompt_ids: %u is not below the vocabulary's %d",
                                   i + 2, trace->requests[i].ids[k], n_vocab);
    return STATUS_OK;
}
