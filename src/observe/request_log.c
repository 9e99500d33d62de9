#include "observe/request_log.h"

#include <time.h>

#include "observe/phase_json.h"

static void write_request(struct json_write *json, const struct request_record *record) {
    const struct request *request = record->request;
    const struct phase_stats *stats = &request->stats;
    json_write_field_text(json, "class", message_class_name(request->class_));
    json_write_field_text(json, "finish_reason", request_metrics_end_name(record->end));
    json_write_field_int(json, "prompt_tokens", request->n_prompt);
    json_write_field_int(json, "cached_tokens", stats->n_cached_tokens);
    json_write_field_int(json, "computed_tokens", request->n_prompt - stats->n_cached_tokens);
    json_write_field_int(json, "output_tokens", record->n_completion);
    json_write_field_int(json, "choices", request->n_choices);
    phase_json_write(json, stats);
    phase_json_write_since(json, "predicted_ttft_ms", stats, stats->predicted_ns);
    json_write_field_int(json, "preemptions", stats->n_preemptions);
}

static double ms_between(int64_t from_ns, int64_t to_ns) {
    return from_ns && to_ns > from_ns ? (double)(to_ns - from_ns) / 1e6 : 0;
}

static enum status write_text(const struct request_log_line *line, struct str *out) {
    char time[32];
    struct tm tm;
    time_t seconds = (time_t)(line->time_ms / 1000);
    if (!gmtime_r(&seconds, &tm) || !strftime(time, sizeof time, "%Y-%m-%dT%H:%M:%S", &tm)) time[0] = 0;
    enum status status = str_append_fmt(out, "%s.%03dZ %s %s %d key=%s", time, (int)(line->time_ms % 1000), line->id,
                                        line->path, line->http_code, line->key ? line->key : "-");
    if (!status && line->fault) status = str_append_fmt(out, " fault=%s", line->fault);
    if (!status && line->record) {
        const struct request *request = line->record->request;
        const struct phase_stats *stats = &request->stats;
        int64_t received_ns = stats->received_ns ? stats->received_ns : stats->submitted_ns;
        status =
            str_append_fmt(out, " %s %s prompt=%d cached=%d output=%d ttft_ms=%.1f total_ms=%.1f",
                           message_class_name(request->class_), request_metrics_end_name(line->record->end),
                           request->n_prompt, stats->n_cached_tokens, line->record->n_completion,
                           ms_between(received_ns, stats->first_token_ns), ms_between(received_ns, stats->finished_ns));
    }
    return status ? status : str_append(out, "\n", 1);
}

static enum status write_json(const struct request_log_line *line, struct str *out) {
    struct json_write json;
    json_write_init(&json, out);
    json_write_object(&json);
    json_write_field_int(&json, "time_ms", line->time_ms);
    json_write_field_text(&json, "id", line->id);
    json_write_field_text(&json, "path", line->path);
    if (line->traceparent) json_write_field_text(&json, "traceparent", line->traceparent);
    if (line->key)
        json_write_field_text(&json, "key", line->key);
    else
        json_write_field_null(&json, "key");
    json_write_field_int(&json, "status", line->http_code);
    if (line->fault) json_write_field_text(&json, "fault", line->fault);
    if (line->record) write_request(&json, line->record);
    json_write_end_object(&json);
    enum status status = json_write_finish(&json);
    return status ? status : str_append(out, "\n", 1);
}

enum status request_log_write(const struct request_log_line *line, enum log_format format, struct str *out) {
    return format == LOG_JSON ? write_json(line, out) : write_text(line, out);
}
