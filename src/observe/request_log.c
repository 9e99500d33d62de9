#include "observe/request_log.h"

#include "observe/phase_json.h"

static void write_request(struct json_write *json, const struct request_record *record) {
    static const char *const classes[] = {"interactive", "batch"};
    const struct request *request = record->request;
    const struct phase_stats *stats = &request->stats;
    json_write_field_text(json, "class", classes[request->class_]);
    json_write_field_text(json, "finish_reason", request_metrics_end_name(record->end));
    json_write_field_int(json, "prompt_tokens", request->n_prompt);
    json_write_field_int(json, "cached_tokens", stats->n_cached_tokens);
    json_write_field_int(json, "computed_tokens", request->n_prompt - stats->n_cached_tokens);
    json_write_field_int(json, "output_tokens", record->n_completion);
    phase_json_write(json, stats);
    json_write_field_int(json, "preemptions", stats->n_preemptions);
}

enum status request_log_write(const struct request_log_line *line, struct str *out) {
    struct json_write json;
    json_write_init(&json, out);
    json_write_object(&json);
    json_write_field_int(&json, "time_ms", line->time_ms);
    json_write_field_text(&json, "id", line->id);
    json_write_field_text(&json, "path", line->path);
    if (line->traceparent) json_write_field_text(&json, "traceparent", line->traceparent);
    json_write_field_int(&json, "key", line->key_idx);
    json_write_field_int(&json, "status", line->http_code);
    if (line->fault) json_write_field_text(&json, "fault", line->fault);
    if (line->record) write_request(&json, line->record);
    json_write_end_object(&json);
    enum status status = json_write_finish(&json);
    return status ? status : str_append(out, "\n", 1);
}
