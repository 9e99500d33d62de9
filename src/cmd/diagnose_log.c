#include "cmd/diagnose_log.h"

#include <stdio.h>
#include <string.h>

#include <jansson.h>

#define NS_PER_MS 1e6
#define MAX_MS 9e12   /* in ns it is an int64_t */
#define MAX_COUNT 1e8 /* tokens, blocks */
#define MAX_BUCKET_MS 60000

struct reader {
    struct diagnosis *diagnosis; /* NULL: nothing has been told yet */
    struct diagnosis_window_options options;
    diagnosis_change_fn *on_change;
    void *owner;
    struct diagnose_log_counts *counts;
    struct status_note *note;
};

static enum status bad(const struct reader *reader, const char *field, const char *why) {
    return status_fail(reader->note, STATUS_FORMAT, "line %d: %s: %s", reader->counts->n_lines, field, why);
}

/* ---- fields ---- */

/* A number that is not negative; absent or null is 0. */
static enum status read_number(const struct reader *reader, const json_t *json, const char *field, double *out) {
    const json_t *value = json_object_get(json, field);
    *out = 0;
    if (!value || json_is_null(value)) return STATUS_OK;
    if (!json_is_number(value)) return bad(reader, field, "is not a number");
    *out = json_number_value(value);
    return *out <= MAX_MS ? STATUS_OK : bad(reader, field, "is too large");
}

static enum status read_count(const struct reader *reader, const json_t *json, const char *field, int *out) {
    double value;
    enum status status = read_number(reader, json, field, &value);
    if (!status && (value < 0 || value > MAX_COUNT)) status = bad(reader, field, "is no count");
    if (!status) *out = (int)value;
    return status;
}

static enum status read_count64(const struct reader *reader, const json_t *json, const char *field, int64_t *out) {
    double value;
    enum status status = read_number(reader, json, field, &value);
    if (!status && value < 0) status = bad(reader, field, "is no count");
    if (!status) *out = (int64_t)value;
    return status;
}

static enum status read_ms(const struct reader *reader, const json_t *json, const char *field, int64_t *out_ns) {
    double value;
    enum status status = read_number(reader, json, field, &value);
    if (!status) *out_ns = value > 0 ? (int64_t)(value * NS_PER_MS) : 0;
    return status;
}

/* ---- lines ---- */

static enum admission_reason refusal_of(const char *fault) {
    for (int i = ADMISSION_ADMITTED + 1; fault && i < ADMISSION_N_REASONS; i++)
        if (strcmp(fault, admission_reason_name((enum admission_reason)i)) == 0) return (enum admission_reason)i;
    return ADMISSION_ADMITTED;
}

static enum status read_phases(const struct reader *reader, const json_t *json, struct diagnosis_record *out) {
    enum status status = read_ms(reader, json, "ttft_ms", &out->ttft_ns);
    for (int i = 0; !status && i < N_PHASES; i++) {
        char field[40];
        snprintf(field, sizeof field, "%s_ms", phase_stats_name((enum phase)i));
        status = read_ms(reader, json, field, &out->part_ns[i]);
    }
    if (!status) status = read_ms(reader, json, "predicted_ttft_ms", &out->promised_ns);
    out->was_run = out->ttft_ns > 0;
    return status;
}

static enum status read_request(const struct reader *reader, const json_t *json, struct diagnosis_record *out) {
    const char *class_ = json_string_value(json_object_get(json, "class"));
    *out = (struct diagnosis_record){.key = json_string_value(json_object_get(json, "key")),
                                     .refusal = refusal_of(json_string_value(json_object_get(json, "fault"))),
                                     .n_choices = 1};
    out->class_ =
        class_ && strcmp(class_, message_class_name(REQUEST_BATCH)) == 0 ? REQUEST_BATCH : REQUEST_INTERACTIVE;
    enum status status = read_count(reader, json, "prompt_tokens", &out->n_prompt);
    if (!status) status = read_count(reader, json, "cached_tokens", &out->n_cached);
    if (!status) status = read_count(reader, json, "output_tokens", &out->n_output);
    if (!status && json_object_get(json, "choices")) status = read_count(reader, json, "choices", &out->n_choices);
    if (!status && out->n_cached > out->n_prompt) status = bad(reader, "cached_tokens", "is more than prompt_tokens");
    return status ? status : read_phases(reader, json, out);
}

static enum status read_sample(const struct reader *reader, const json_t *json, struct engine_stats *out) {
    const json_t *misses = json_object_get(json, "misses");
    int64_t steps_us = 0;
    *out = (struct engine_stats){.n_groups = 1};
    enum status status = read_count(reader, json, "running", &out->classes[0].n_running);
    if (!status) status = read_count(reader, json, "waiting", &out->classes[0].n_waiting);
    if (!status) status = read_count(reader, json, "blocks", &out->groups[0].n_blocks);
    if (!status) status = read_count(reader, json, "held_blocks", &out->groups[0].n_held);
    if (!status) status = read_count64(reader, json, "held_slots", &out->groups[0].n_held_slots);
    if (!status) status = read_count64(reader, json, "preemptions", &out->n_preempted);
    if (!status) status = read_count64(reader, json, "steps", &out->n_steps);
    if (!status) status = read_count64(reader, json, "steps_us", &steps_us);
    if (!status) status = read_count64(reader, json, "rows", &out->n_rows);
    if (!status) status = read_count64(reader, json, "prefill_rows", &out->n_prefill_rows);
    for (size_t i = 0; !status && i < ENGINE_STATS_N_MISSES; i++)
        out->n_misses[i] = json_integer_value(json_array_get(misses, i));
    out->steps_ns = steps_us * 1000;
    return status;
}

static enum status read_window(struct reader *reader, const json_t *json) {
    struct diagnosis_window_options *options = &reader->options;
    int bucket_ms = 0;
    enum status status = read_count(reader, json, "bucket_ms", &bucket_ms);
    if (!status) status = read_count(reader, json, "recent", &options->n_recent);
    if (!status) status = read_count(reader, json, "baseline", &options->n_baseline);
    if (!status) status = read_ms(reader, json, "slo_ttft_ms", &options->slo_ttft_ns[REQUEST_INTERACTIVE]);
    if (status) return status;
    if (reader->diagnosis) return bad(reader, "window", "is not the first line");
    if (bucket_ms < 1 || bucket_ms > MAX_BUCKET_MS) return bad(reader, "bucket_ms", "is not within 1..60000");
    if (options->n_recent < 1 || options->n_recent > DIAGNOSIS_WINDOW_MAX_RECENT)
        return bad(reader, "recent", "is not within 1..12");
    if (options->n_baseline < 1 || options->n_baseline > DIAGNOSIS_WINDOW_MAX_BASELINE)
        return bad(reader, "baseline", "is not within 1..60");
    options->bucket_ns = (int64_t)bucket_ms * 1000000;
    return STATUS_OK;
}

static enum status begin(struct reader *reader) {
    if (reader->diagnosis) return STATUS_OK;
    enum status status = diagnosis_create(&reader->diagnosis, &reader->options);
    if (status) return status_fail(reader->note, status, "no memory for diagnosis");
    diagnosis_listen(reader->diagnosis, reader->on_change, reader->owner);
    return STATUS_OK;
}

/* Lines are written as requests end; what is late by the clock counts with the lines around it. */
static int64_t clock_of(struct reader *reader, int64_t time_ms) {
    struct diagnose_log_counts *counts = reader->counts;
    if (!counts->first_ms) counts->first_ms = time_ms;
    if (time_ms > counts->last_ms) counts->last_ms = time_ms;
    return counts->last_ms * 1000000;
}

static enum status take_object(struct reader *reader, const json_t *json) {
    const json_t *window = json_object_get(json, "window"), *engine = json_object_get(json, "engine");
    struct diagnosis_record record;
    struct engine_stats stats;
    int64_t time_ms;
    if (window) return read_window(reader, window);
    enum status status = read_count64(reader, json, "time_ms", &time_ms);
    if (status || !time_ms || (!engine && !json_object_get(json, "status"))) return status;
    status = engine ? read_sample(reader, engine, &stats) : read_request(reader, json, &record);
    if (!status) status = begin(reader);
    if (status) return status;
    if (engine) {
        reader->counts->n_samples++;
        diagnosis_sample(reader->diagnosis, &stats, clock_of(reader, time_ms));
    } else {
        reader->counts->n_requests++;
        diagnosis_note(reader->diagnosis, &record, clock_of(reader, time_ms));
    }
    return STATUS_OK;
}

static enum status take_line(struct reader *reader, const char *line, size_t n_bytes) {
    json_error_t error;
    reader->counts->n_lines++;
    if (n_bytes == 0 || line[0] != '{') return STATUS_OK; /* what another program, or log-format text, has said */
    json_t *json = json_loadb(line, n_bytes, 0, &error);
    if (!json) return bad(reader, "the line", error.text);
    enum status status = take_object(reader, json);
    json_decref(json);
    return status;
}

enum status diagnose_log_read(const char *text, size_t n_bytes, diagnosis_change_fn *on_change, void *owner,
                              struct diagnosis **out_diagnosis, struct diagnose_log_counts *out_counts,
                              struct status_note *note) {
    struct reader reader = {
        .options = diagnosis_options(), .on_change = on_change, .owner = owner, .counts = out_counts, .note = note};
    enum status status = STATUS_OK;
    *out_counts = (struct diagnose_log_counts){0};
    for (const char *at = text, *end = text + n_bytes; !status && at < end;) {
        const char *stop = memchr(at, '\n', (size_t)(end - at));
        if (!stop) stop = end;
        status = take_line(&reader, at, (size_t)(stop - at));
        at = stop + 1;
    }
    *out_diagnosis = reader.diagnosis;
    return status;
}
