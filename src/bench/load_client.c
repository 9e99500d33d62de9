#include "bench/load_client.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/json_write.h"
#include "base/mem.h"
#include "http/sse_read.h"

#define MAX_BODY_BYTES ((size_t)64 << 20)
#define MAX_EVENT_BYTES ((size_t)1 << 20)
#define MAX_ERROR_BYTES ((size_t)1 << 16)
#define MAX_HEADER_BYTES 1100
#define WAIT_MS 1000
#define FETCH_MS 20000

struct stream {
    struct load_client *client;
    struct load_answer *answer; /* NULL: free */
    load_end_fn *on_end;
    void *owner;
    struct http_client_transfer *transfer;
    struct str body;  /* of the request */
    struct str error; /* of a reply that is no stream */
    struct sse_read sse;
    int64_t now_ns; /* when the bytes came that are being read */
};

struct load_client {
    const struct load_target *target;
    struct http_client *http;
    int max_streams;
    struct stream streams[];
};

static bool on_event(void *owner, const char *data, size_t n_bytes) {
    struct stream *stream = owner;
    return load_answer_read(stream->answer, data, n_bytes, stream->now_ns);
}

/* ---- life ---- */

enum status load_client_create(struct load_client **out_client, const struct load_target *target, int max_streams,
                               struct status_note *note) {
    REQUIRE(max_streams >= 1);
    struct load_client *client = mem_alloc(sizeof *client + (size_t)max_streams * sizeof(struct stream));
    *out_client = client;
    if (!client) return status_fail(note, STATUS_NOMEM, "no memory for %d streams", max_streams);
    client->target = target;
    client->max_streams = max_streams;
    for (int i = 0; i < max_streams; i++) {
        struct stream *stream = &client->streams[i];
        stream->client = client;
        str_init(&stream->body, MAX_BODY_BYTES);
        str_init(&stream->error, MAX_ERROR_BYTES);
        sse_read_init(&stream->sse, MAX_EVENT_BYTES, on_event, stream);
    }
    enum status status = http_client_create(&client->http, max_streams, note);
    if (status) load_client_destroy(out_client);
    return status;
}

void load_client_destroy(struct load_client **client) {
    if (!*client) return;
    http_client_destroy(&(*client)->http);
    for (int i = 0; i < (*client)->max_streams; i++) {
        str_deinit(&(*client)->streams[i].body);
        str_deinit(&(*client)->streams[i].error);
        sse_read_deinit(&(*client)->streams[i].sse);
    }
    mem_free(*client);
    *client = NULL;
}

/* ---- the request ---- */

static void write_messages(struct json_write *json, const struct load_ask *ask) {
    json_write_field_array(json, "messages");
    for (int i = 0; i < ask->n_turns; i++) {
        json_write_object(json);
        json_write_field_text(json, "role", ask->turns[i].role);
        json_write_field_text(json, "content", ask->turns[i].text);
        json_write_end_object(json);
    }
    json_write_end_array(json);
}

static void write_prompt(struct json_write *json, const struct load_ask *ask) {
    json_write_key(json, "prompt");
    if (ask->ids) {
        json_write_array(json);
        for (int i = 0; i < ask->n_ids; i++) json_write_int(json, ask->ids[i]);
        json_write_end_array(json);
        return;
    }
    struct str text;
    str_init(&text, MAX_BODY_BYTES);
    for (int i = 0; i < ask->n_turns && !json->status; i++) json->status = str_append_text(&text, ask->turns[i].text);
    json_write_text(json, text.ptr, text.n_bytes);
    str_deinit(&text);
}

static enum status write_body(const struct load_target *target, const struct load_ask *ask, struct str *out) {
    struct json_write json;
    str_clear(out);
    json_write_init(&json, out);
    json_write_object(&json);
    json_write_field_text(&json, "model", target->model);
    if (target->endpoint == LOAD_CHAT)
        write_messages(&json, ask);
    else
        write_prompt(&json, ask);
    json_write_field_int(&json, "max_tokens", ask->max_tokens);
    json_write_field_int(&json, "temperature", 0);
    json_write_field_flag(&json, "stream", true);
    if (target->takes_usage) {
        json_write_field_object(&json, "stream_options");
        json_write_field_flag(&json, "include_usage", true);
        json_write_end_object(&json);
    }
    if (target->takes_extras) {
        json_write_field_flag(&json, "ignore_eos", true);
        json_write_field_flag(&json, "return_phases", true);
        if (ask->wants_ids) json_write_field_flag(&json, "return_token_ids", true);
        if (ask->is_batch) json_write_field_text(&json, "service_tier", "flex");
    }
    json_write_end_object(&json);
    return json_write_finish(&json);
}

/* ---- the reply ---- */

static bool on_bytes(void *owner, int code, const char *bytes, size_t n_bytes) {
    struct stream *stream = owner;
    if (code != 200) return str_append(&stream->error, bytes, n_bytes) == STATUS_OK;
    stream->now_ns = clock_now_ns();
    enum status status = sse_read_feed(&stream->sse, bytes, n_bytes);
    if (!status) return true;
    if (stream->answer->end == LOAD_RUNNING) {
        stream->answer->end = LOAD_MALFORMED;
        snprintf(stream->answer->note, sizeof stream->answer->note, "an event has more than %zu bytes",
                 MAX_EVENT_BYTES);
    }
    return false;
}

static void judge(struct stream *stream, const struct http_client_result *result) {
    struct load_answer *answer = stream->answer;
    static const enum load_end ends[] = {[HTTP_CLIENT_DONE] = LOAD_OK,
                                         [HTTP_CLIENT_NO_SERVER] = LOAD_NO_SERVER,
                                         [HTTP_CLIENT_CUT] = LOAD_CUT,
                                         [HTTP_CLIENT_TIMEOUT] = LOAD_TIMEOUT,
                                         [HTTP_CLIENT_ENOUGH] = LOAD_MALFORMED};
    answer->code = result->code;
    answer->retry_after_s = result->retry_after_s;
    if (answer->end != LOAD_RUNNING) return; /* the stream's own words */
    if (result->code && result->code != 200 && (result->end == HTTP_CLIENT_DONE || result->end == HTTP_CLIENT_ENOUGH)) {
        load_answer_fail(answer, result->code, stream->error.ptr, stream->error.n_bytes);
        return;
    }
    answer->end = ends[result->end];
    snprintf(answer->note, sizeof answer->note, "%s", result->error);
    if (answer->end != LOAD_OK || answer->is_done || answer->finish_reason[0]) return;
    answer->end = answer->n_content ? LOAD_CUT : LOAD_MALFORMED;
    snprintf(answer->note, sizeof answer->note, "the reply ended without [DONE] and without a finish_reason");
}

static void on_end(void *owner, const struct http_client_result *result) {
    struct stream *stream = owner;
    struct load_answer *answer = stream->answer;
    answer->ended_ns = clock_now_ns();
    judge(stream, result);
    stream->answer = NULL;
    if (stream->on_end) stream->on_end(stream->owner, answer);
}

/* ---- streams ---- */

static struct stream *stream_of(struct load_client *client, const struct load_answer *answer) {
    for (int i = 0; i < client->max_streams; i++)
        if (client->streams[i].answer == answer) return &client->streams[i];
    return NULL;
}

static void set_headers(const struct load_target *target, struct http_client_request *request,
                        char key[MAX_HEADER_BYTES]) {
    request->headers[request->n_headers++] = "Content-Type: application/json";
    if (!target->api_key) return;
    snprintf(key, MAX_HEADER_BYTES, "Authorization: Bearer %s", target->api_key);
    request->headers[request->n_headers++] = key;
}

enum status load_client_start(struct load_client *client, const struct load_ask *ask, struct load_answer *answer,
                              load_end_fn *ended, void *owner, struct status_note *note) {
    static const struct http_client_handlers handlers = {on_bytes, on_end};
    struct stream *stream = stream_of(client, NULL);
    char url[LOAD_CLIENT_MAX_URL_BYTES + 32], key[MAX_HEADER_BYTES];
    REQUIRE(ask->max_tokens + 1 <= answer->max_content);
    load_answer_clear(answer);
    if (!stream) return status_fail(note, STATUS_BUSY, "%d answers are under way", client->max_streams);
    str_clear(&stream->error);
    sse_read_deinit(&stream->sse);
    sse_read_init(&stream->sse, MAX_EVENT_BYTES, on_event, stream);
    enum status status = write_body(client->target, ask, &stream->body);
    if (status) return status_fail(note, status, "a request of more than %zu bytes cannot be made", MAX_BODY_BYTES);
    snprintf(url, sizeof url, "%s%s", client->target->url,
             client->target->endpoint == LOAD_CHAT ? "/chat/completions" : "/completions");
    struct http_client_request request = {
        .url = url, .body = stream->body.ptr, .n_body_bytes = stream->body.n_bytes, .timeout_ms = ask->timeout_ms};
    set_headers(client->target, &request, key);
    stream->on_end = ended;
    stream->owner = owner;
    answer->sent_ns = clock_now_ns();
    status = http_client_start(client->http, &request, &handlers, stream, &stream->transfer, note);
    if (!status) stream->answer = answer;
    return status;
}

void load_client_cancel(struct load_client *client, struct load_answer *answer) {
    struct stream *stream = stream_of(client, answer);
    if (!stream) return;
    http_client_cancel(client->http, &stream->transfer);
    stream->answer = NULL;
    answer->end = LOAD_CANCELLED;
    answer->ended_ns = clock_now_ns();
}

int load_client_run(struct load_client *client, int timeout_ms) {
    return http_client_run(client->http, timeout_ms);
}

static void on_asked(void *owner, struct load_answer *answer) {
    bool *is_ended = owner;
    (void)answer;
    *is_ended = true;
}

enum status load_client_ask(struct load_client *client, const struct load_ask *ask, struct load_answer *answer,
                            struct status_note *note) {
    bool is_ended = false;
    enum status status = load_client_start(client, ask, answer, on_asked, &is_ended, note);
    while (!status && !is_ended) load_client_run(client, WAIT_MS);
    return status;
}

enum status load_client_fetch(struct load_client *client, const char *path, const char *body, struct str *out_body,
                              int *out_code, struct status_note *note) {
    char url[LOAD_CLIENT_MAX_URL_BYTES + 64], key[MAX_HEADER_BYTES];
    struct http_client_result result = {0};
    size_t n_base = strlen(client->target->url) - strlen("/v1");
    snprintf(url, sizeof url, "%.*s%s", (int)n_base, client->target->url, path);
    struct http_client_request request = {
        .url = url, .body = body, .n_body_bytes = body ? strlen(body) : 0, .timeout_ms = FETCH_MS};
    set_headers(client->target, &request, key);
    enum status status = http_client_fetch(client->http, &request, out_body, &result, note);
    *out_code = result.code;
    return status;
}
