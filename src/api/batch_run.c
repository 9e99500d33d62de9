#include "api/batch_run.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "api/api_request.h"
#include "api/api_response.h"
#include "base/clock.h"
#include "base/json_write.h"
#include "base/mem.h"

#define MAX_OUT_BYTES ((size_t)160 << 20)
#define RETRY_NS INT64_C(100000000)

/* A line that is being answered. */
struct batch_item {
    struct batch_run *run; /* NULL: free */
    char custom_id[BATCH_RUN_MAX_ID_BYTES + 1];
    size_t n_custom_id;
    const char *line; /* in the input */
    size_t n_bytes;
    int64_t again_ns; /* it had no place and asks again then; 0: it runs */
};

/* ---- ids ---- */

static uint64_t hash_of(const char *id, size_t n_bytes) {
    uint8_t digest[HASH_SHA256_BYTES];
    uint64_t hash;
    hash_sha256(id, n_bytes, NULL, 0, digest);
    memcpy(&hash, digest, sizeof hash);
    return hash ? hash : 1;
}

/* False: it was there. slots: a power of two of them, never full. */
static bool enter(uint64_t *slots, size_t n_slots, uint64_t hash) {
    size_t at = (size_t)hash & (n_slots - 1);
    while (slots[at] && slots[at] != hash) at = (at + 1) & (n_slots - 1);
    bool is_new = slots[at] == 0;
    slots[at] = hash;
    return is_new;
}

static bool is_in(const uint64_t *slots, size_t n_slots, uint64_t hash) {
    size_t at = (size_t)hash & (n_slots - 1);
    while (slots[at] && slots[at] != hash) at = (at + 1) & (n_slots - 1);
    return slots[at] == hash;
}

/* ---- lines ---- */

static bool is_blank(const char *line, size_t n_bytes) {
    for (size_t i = 0; i < n_bytes; i++)
        if (!strchr(" \t\r", line[i])) return false;
    return true;
}

/* The next line from *off that holds something. False: there is none. */
static bool next_line(const struct file_map *file, size_t *off, int *line_no, const char **out_line,
                      size_t *out_n_bytes) {
    const char *bytes = (const char *)file->bytes;
    while (*off < file->n_bytes) {
        const char *end = memchr(bytes + *off, '\n', file->n_bytes - *off);
        size_t n = end ? (size_t)(end - bytes) - *off : file->n_bytes - *off;
        *out_line = bytes + *off;
        *out_n_bytes = n;
        *off += n + (end != NULL);
        ++*line_no;
        if (!is_blank(*out_line, n)) return true;
    }
    return false;
}

static int count_lines(const struct file_map *file) {
    size_t off = 0, n_bytes;
    int n = 0, line_no = 0;
    const char *line;
    while (next_line(file, &off, &line_no, &line, &n_bytes)) n++;
    return n;
}

/* ---- output ---- */

static void write_all(struct batch_run *run, const char *bytes, size_t n_bytes) {
    while (n_bytes && !run->status) {
        ssize_t n = write(run->out_fd, bytes, n_bytes);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) {
            run->status = status_fail(&run->note, STATUS_IO, "the output cannot be written: %s", strerror(errno));
            return;
        }
        bytes += n;
        n_bytes -= (size_t)n;
    }
}

static void open_out(struct json_write *json, struct str *text, struct batch_run *run, const char *custom_id,
                     size_t n_custom_id) {
    char id[40];
    str_init(text, MAX_OUT_BYTES);
    json_write_init(json, text);
    json_write_object(json);
    snprintf(id, sizeof id, "batch_req_%016llx", (unsigned long long)api_server_random(run->api));
    json_write_field_text(json, "id", id);
    json_write_key(json, "custom_id");
    if (custom_id)
        json_write_text(json, custom_id, n_custom_id);
    else
        json_write_null(json);
}

/* The line's end, and out it goes. */
static void close_out(struct json_write *json, struct str *text, struct batch_run *run, bool is_refused) {
    json_write_end_object(json);
    enum status status = json_write_finish(json);
    if (!status) status = str_append(text, "\n", 1);
    if (status && !run->status) run->status = status_fail(&run->note, status, "no memory for a line of the output");
    write_all(run, text->ptr, status ? 0 : text->n_bytes);
    str_deinit(text);
    run->counts.n_done++;
    run->counts.n_refused += is_refused;
}

static void write_response(struct batch_run *run, const struct batch_item *item, int http_code, const char *request_id,
                           const char *body, size_t n_bytes) {
    struct json_write json;
    struct str text;
    open_out(&json, &text, run, item->custom_id, item->n_custom_id);
    json_write_field_object(&json, "response");
    json_write_field_int(&json, "status_code", http_code);
    if (request_id)
        json_write_field_text(&json, "request_id", request_id);
    else
        json_write_field_null(&json, "request_id");
    json_write_key(&json, "body");
    json_write_raw(&json, body, n_bytes);
    json_write_end_object(&json);
    json_write_field_null(&json, "error");
    close_out(&json, &text, run, http_code != 200);
}

/* The line is no request. */
static void write_error(struct batch_run *run, const char *custom_id, size_t n_custom_id,
                        const struct api_fault *fault) {
    struct json_write json;
    struct str text;
    char message[sizeof fault->message + 32];
    snprintf(message, sizeof message, "line %d: %s", run->line, fault->message);
    open_out(&json, &text, run, custom_id, n_custom_id);
    json_write_field_null(&json, "response");
    json_write_field_object(&json, "error");
    json_write_field_text(&json, "code", fault->reason ? fault->reason : "invalid_line");
    json_write_field_text(&json, "message", message);
    json_write_end_object(&json);
    close_out(&json, &text, run, true);
}

/* ---- answers ---- */

static void free_item(struct batch_item *item) {
    item->run->n_open--;
    item->run = NULL;
}

static bool wait_for_place(struct batch_item *item, int http_code) {
    if (http_code != 429) return false;
    item->again_ns = clock_now_ns() + RETRY_NS;
    return true;
}

static void count_tokens(struct batch_counts *counts, struct api_usage usage) {
    counts->n_prompt += usage.n_prompt;
    counts->n_cached += usage.n_cached;
    counts->n_completion += usage.n_completion;
}

/* api_take_fn: a request has its answer. */
static void take(void *owner, const struct api_call *call, const char *body, size_t n_bytes) {
    struct batch_item *item = owner;
    struct batch_run *run = item->run;
    if (!run->is_stopping && wait_for_place(item, call->http_code)) return;
    /* What was cancelled is asked again by the next run. */
    if (!run->is_stopping || call->http_code == 200)
        write_response(run, item, call->http_code, call->id, body, n_bytes);
    if (call->http_code == 200) count_tokens(&run->counts, api_call_usage(call));
    free_item(item);
}

static void write_fault(struct batch_run *run, const struct batch_item *item, const struct api_fault *fault,
                        enum api_shape shape) {
    struct str body;
    str_init(&body, MAX_OUT_BYTES);
    if (api_fault_write(fault, shape, &body)) str_clear(&body);
    write_response(run, item, fault->http_code, NULL, body.n_bytes ? body.ptr : "null",
                   body.n_bytes ? body.n_bytes : 4);
    str_deinit(&body);
}

/* ---- asking ---- */

static bool read_head(const json_t *json, const char **out_url, struct api_fault *fault) {
    const json_t *method = json_object_get(json, "method"), *url = json_object_get(json, "url");
    if (!json_is_string(method) || strcmp(json_string_value(method), "POST") != 0)
        return api_fault_set(fault, 400, "invalid_line", "method", "'method' must be POST");
    if (!json_is_string(url) || !api_request_ask_of(json_string_value(url)))
        return api_fault_set(fault, 400, "invalid_url", "url", "'url' names no route that answers requests");
    if (!json_is_object(json_object_get(json, "body")))
        return api_fault_set(fault, 400, "invalid_line", "body", "'body' must be an object");
    if (json_is_true(json_object_get(json_object_get(json, "body"), "stream")))
        return api_fault_set(fault, 400, "unsupported_parameter", "stream", "'stream' makes no sense in a batch");
    *out_url = json_string_value(url);
    return true;
}

/* Starts the request of an item's line. False: the item is free again, its line is written. */
static bool ask(struct batch_run *run, struct batch_item *item, const json_t *json, const char *url) {
    struct api_fault fault = {0};
    const struct api_ask *route = api_request_ask_of(url);
    struct api_origin origin = {
        .take = take, .owner = item, .path = url, .key_idx = -1, .received_ns = clock_now_ns(), .is_batch = true};
    size_t n_bytes;
    char *body = json_read_dump(json_object_get(json, "body"), &n_bytes);
    item->again_ns = 0;
    if (!body) {
        api_fault_set(&fault, 503, "out_of_memory", NULL, "no memory for the request");
    } else if (api_request_start(run->api, &origin, route, body, n_bytes, &fault)) {
        mem_free(body);
        return true;
    }
    mem_free(body);
    if (wait_for_place(item, fault.http_code)) return true;
    write_fault(run, item, &fault, route->response->shape);
    free_item(item);
    return false;
}

static bool is_long(size_t n_bytes, struct api_fault *fault) {
    if (n_bytes <= BATCH_RUN_MAX_LINE_BYTES) return false;
    api_fault_set(fault, 400, "invalid_line", NULL, "it has %zu bytes, at most %zu are taken", n_bytes,
                  BATCH_RUN_MAX_LINE_BYTES);
    return true;
}

/* The line's name, told from all others. */
static bool read_id(struct batch_run *run, const json_t *json, const char **out_id, size_t *out_n_bytes, bool *out_done,
                    struct api_fault *fault) {
    if (!json_read_text(json, "custom_id", BATCH_RUN_MAX_ID_BYTES, out_id, out_n_bytes, fault)) return false;
    if (!*out_id) return api_fault_set(fault, 400, "invalid_line", "custom_id", "'custom_id' is missing");
    uint64_t hash = hash_of(*out_id, *out_n_bytes);
    *out_done = run->done && is_in(run->done, run->n_slots, hash);
    if (enter(run->seen, run->n_slots, hash) || *out_done) return true;
    return api_fault_set(fault, 400, "duplicate_custom_id", "custom_id", "its 'custom_id' was used before");
}

static struct batch_item *take_place(struct batch_run *run, const char *line, size_t n_bytes, const char *id,
                                     size_t n_id) {
    struct batch_item *item = run->items;
    while (item->run) item++;
    *item = (struct batch_item){.run = run, .n_custom_id = n_id, .line = line, .n_bytes = n_bytes};
    memcpy(item->custom_id, id, n_id);
    run->n_open++;
    return item;
}

static void begin_line(struct batch_run *run, const char *line, size_t n_bytes) {
    struct api_fault fault = {0};
    const char *id = NULL, *url;
    size_t n_id = 0;
    bool is_done = false;
    json_t *json = is_long(n_bytes, &fault) ? NULL : json_read_object(line, n_bytes, &fault);
    if (!json || !read_id(run, json, &id, &n_id, &is_done, &fault) || (!is_done && !read_head(json, &url, &fault)))
        write_error(run, id, n_id, &fault);
    else if (!is_done)
        (void)ask(run, take_place(run, line, n_bytes, id, n_id), json, url);
    json_decref(json);
}

/* Those that found no place ask again. */
static void ask_again(struct batch_run *run) {
    int64_t now_ns = clock_now_ns();
    for (int i = 0; i < run->max_open; i++) {
        struct batch_item *item = &run->items[i];
        struct api_fault fault;
        const char *url = NULL;
        if (!item->run || !item->again_ns || item->again_ns > now_ns) continue;
        json_t *json = json_read_object(item->line, item->n_bytes, &fault);
        if (json && read_head(json, &url, &fault))
            (void)ask(run, item, json, url);
        else
            item->again_ns = now_ns + RETRY_NS; /* it was read before: there is no memory now */
        json_decref(json);
    }
}

bool batch_run_turn(struct batch_run *run) {
    const char *line;
    size_t n_bytes;
    bool has_more = true;
    if (run->status && !run->is_stopping) batch_run_stop(run);
    if (run->is_stopping) return run->n_open == 0;
    ask_again(run);
    while (run->n_open < run->max_open && !run->status) {
        has_more = next_line(&run->in, &run->next_off, &run->line, &line, &n_bytes);
        if (!has_more) break;
        begin_line(run, line, n_bytes);
    }
    return !has_more && run->n_open == 0 && !run->status;
}

void batch_run_stop(struct batch_run *run) {
    run->is_stopping = true;
    for (struct api_call *call = run->api->calls; call; call = call->next) api_call_cancel(call);
    for (int i = 0; i < run->max_open; i++)
        if (run->items[i].run && run->items[i].again_ns) free_item(&run->items[i]);
}

/* ---- life ---- */

/* Every whole line of the output is a line that is done; what comes behind the last one was cut and goes. */
static enum status read_done(struct batch_run *run, const char *out_path, struct status_note *note) {
    struct file_map out;
    struct api_fault fault;
    const char *line;
    size_t off = 0, n_bytes, n_whole = 0;
    int line_no = 0;
    enum status status = file_map_open(&out, out_path, note);
    if (status) return status;
    run->done = mem_alloc_array(run->n_slots, sizeof *run->done);
    if (!run->done) status = status_fail(note, STATUS_NOMEM, "no memory for the lines that are done");
    while (!status && next_line(&out, &off, &line_no, &line, &n_bytes)) {
        json_t *json = json_read_object(line, n_bytes, &fault);
        const json_t *id = json_object_get(json, "custom_id");
        bool is_whole = json && out.bytes[off - 1] == '\n';
        if (is_whole && run->counts.n_before == run->counts.n_lines)
            status = status_fail(note, STATUS_INVALID, "it has more lines than the input: it belongs to another");
        if (is_whole && json_is_string(id))
            (void)enter(run->done, run->n_slots, hash_of(json_string_value(id), json_string_length(id)));
        if (is_whole) run->counts.n_before++;
        if (is_whole) n_whole = off;
        json_decref(json);
        if (!is_whole && off < out.n_bytes)
            status = status_fail(note, STATUS_INVALID, "line %d is no line of such an output", line_no);
    }
    file_map_close(&out);
    if (!status && truncate(out_path, (off_t)n_whole) != 0)
        status = status_fail(note, STATUS_IO, "it cannot be cut to its last whole line: %s", strerror(errno));
    run->counts.n_done = run->counts.n_before;
    return status;
}

static enum status open_output(struct batch_run *run, const char *out_path, bool resumes, struct status_note *note) {
    struct stat stat_of;
    bool is_there = stat(out_path, &stat_of) == 0 && stat_of.st_size > 0;
    if (is_there && !resumes)
        return status_fail(note, STATUS_INVALID, "it is there already (--resume goes on with it)");
    enum status status = is_there ? read_done(run, out_path, note) : STATUS_OK;
    if (status) return status;
    run->out_fd = open(out_path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
    return run->out_fd < 0 ? status_fail(note, STATUS_IO, "%s", strerror(errno)) : STATUS_OK;
}

enum status batch_run_open(struct batch_run *run, struct api_server *api, const char *in_path, const char *out_path,
                           bool resumes, int max_open, struct status_note *note) {
    *run = (struct batch_run){.api = api, .out_fd = -1, .max_open = max_open, .n_slots = 16};
    enum status status = file_map_open(&run->in, in_path, note);
    if (status) {
        status_note_prefix(note, in_path);
        return status;
    }
    run->counts.n_lines = count_lines(&run->in);
    while (run->n_slots < 2 * (size_t)run->counts.n_lines) run->n_slots *= 2;
    run->seen = mem_alloc_array(run->n_slots, sizeof *run->seen);
    run->items = mem_alloc_array((size_t)max_open, sizeof *run->items);
    if (!run->seen || !run->items)
        return status_fail(note, STATUS_NOMEM, "no memory for %d lines", run->counts.n_lines);
    status = open_output(run, out_path, resumes, note);
    if (status) status_note_prefix(note, out_path);
    return status;
}

void batch_run_close(struct batch_run *run) {
    if (run->out_fd >= 0) close(run->out_fd);
    mem_free(run->seen);
    mem_free(run->done);
    mem_free(run->items);
    file_map_close(&run->in);
    *run = (struct batch_run){.out_fd = -1};
}
