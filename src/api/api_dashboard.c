#include "api/api_dashboard.h"

#include <string.h>
#include <time.h>

#include "api/api_call.h"
#include "api/api_reply.h"
#include "base/clock.h"
#include "base/mem.h"

#define MAX_STEPS 2000   /* of a reply */
#define MAX_REQUESTS 500 /* likewise, that ended */
#define MAX_RUNNING 200
#define FIRST_STEPS 1500 /* of a reply to who has nothing yet */
#define FIRST_REQUESTS 100

enum status api_dashboard_create(struct api_dashboard **out_dashboard) {
    struct api_dashboard *dashboard = mem_alloc(sizeof *dashboard);
    *out_dashboard = dashboard;
    if (!dashboard) return STATUS_NOMEM;
    dashboard->origin_ns = clock_now_ns();
    live_history_init(&dashboard->live, dashboard->origin_ns);
    return STATUS_OK;
}

void api_dashboard_destroy(struct api_dashboard **dashboard) {
    mem_free(*dashboard);
    *dashboard = NULL;
}

void api_dashboard_sample(struct api_server *api, const struct engine_stats *stats, int64_t now_ns) {
    live_history_sample(&api->dashboard->live, now_ns, stats, api_call_n_pending(api));
}

/* ---- parts of a reply ---- */

/* From here on: one reply while it is written. */
struct feed {
    struct api_server *api;
    struct json_write *json;
    int64_t now_ns;
};

/* Microseconds since the dashboard's origin; null for 0. */
static void write_time(const struct feed *feed, int64_t at_ns) {
    if (at_ns)
        json_write_int(feed->json, (at_ns - feed->api->dashboard->origin_ns) / 1000);
    else
        json_write_null(feed->json);
}

static void write_field_time(const struct feed *feed, const char *key, int64_t at_ns) {
    json_write_key(feed->json, key);
    write_time(feed, at_ns);
}

/* 0.1 is as exact as a picture needs; short numbers keep replies short. */
static void write_tenths(const struct feed *feed, double value) {
    json_write_real(feed->json, (double)(int64_t)(value * 10 + .5) / 10);
}

static void write_hundredths(const struct feed *feed, double value) {
    json_write_real(feed->json, (double)(int64_t)(value * 100 + .5) / 100);
}

/* In the order of sample_fields. */
static void write_sample(const struct feed *feed, const struct live_sample *sample) {
    json_write_array(feed->json);
    write_time(feed, sample->at_ns);
    for (int i = 0; i < LIVE_HISTORY_N_QUANTILES; i++)
        if (sample->n_ttft)
            write_hundredths(feed, sample->ttft_ms[i]);
        else
            json_write_null(feed->json);
    for (int i = 0; i < LIVE_HISTORY_N_QUANTILES; i++)
        if (sample->n_itl)
            write_hundredths(feed, sample->itl_ms[i]);
        else
            json_write_null(feed->json);
    json_write_int(feed->json, sample->n_running);
    json_write_int(feed->json, sample->n_waiting);
    json_write_real(feed->json, sample->held_share);
    json_write_real(feed->json, sample->reusable_share);
    write_tenths(feed, sample->n_computed);
    write_tenths(feed, sample->n_cached);
    write_tenths(feed, sample->n_output);
    write_tenths(feed, sample->n_asked);
    write_tenths(feed, sample->n_found);
    write_hundredths(feed, sample->busy_share);
    json_write_end_array(feed->json);
}

static void write_samples(const struct feed *feed, int64_t since) {
    static const char fields[] =
        "[\"at_us\",\"ttft_p50\",\"ttft_p95\",\"ttft_p99\",\"itl_p50\",\"itl_p95\",\"itl_p99\","
        "\"running\",\"waiting\",\"held\",\"reusable\",\"computed\",\"cached\",\"output\","
        "\"asked\",\"found\",\"busy\"]";
    const struct live_history *live = &feed->api->dashboard->live;
    json_write_key(feed->json, "sample_fields");
    json_write_raw(feed->json, fields, sizeof fields - 1);
    if (since < live->n_samples - LIVE_HISTORY_MAX) since = live->n_samples - LIVE_HISTORY_MAX;
    if (since < 0) since = 0;
    json_write_field_array(feed->json, "samples");
    for (int64_t i = since; i < live->n_samples; i++) write_sample(feed, live_history_at(live, i));
    json_write_end_array(feed->json);
    json_write_field_int(feed->json, "next_sample", live->n_samples);
}

static void write_quantiles(const struct feed *feed, const char *key, const struct latency_window *window) {
    static const char *const names[LIVE_HISTORY_N_QUANTILES] = {"p50", "p95", "p99"};
    double ms[LIVE_HISTORY_N_QUANTILES];
    uint64_t n = latency_window_read(window, feed->now_ns, LATENCY_WINDOW_SECONDS, live_history_shares,
                                     LIVE_HISTORY_N_QUANTILES, ms);
    json_write_field_object(feed->json, key);
    json_write_field_int(feed->json, "n", (int64_t)n);
    for (int i = 0; i < LIVE_HISTORY_N_QUANTILES; i++)
        if (n)
            json_write_field_real(feed->json, names[i], ms[i]);
        else
            json_write_field_null(feed->json, names[i]);
    json_write_end_object(feed->json);
}

static void write_now(const struct feed *feed, const struct engine_stats *stats) {
    const struct api_server *api = feed->api;
    struct json_write *json = feed->json;
    struct engine_class_stats all = engine_stats_all(stats);
    json_write_field_int(json, "running", all.n_running);
    json_write_field_int(json, "waiting", all.n_waiting + api_call_n_pending(api));
    json_write_field_int(json, "blocks", stats->groups[0].n_blocks);
    json_write_field_int(json, "free_blocks", stats->n_free_blocks);
    json_write_field_int(json, "reusable_blocks", stats->n_reusable_blocks);
    json_write_field_int(json, "held_blocks", stats->n_held_blocks);
    json_write_field_int(json, "block_tokens", api->options.block_tokens);
    json_write_field_int(json, "max_context", engine_max_context(api->engine));
    json_write_field_int(json, "preemptions", stats->n_preempted);
    json_write_field_int(json, "refused", stats->n_refused);
    json_write_field_real(json, "prompt_tokens", api->metrics.n_prompt_tokens);
    json_write_field_real(json, "cached_tokens", api->metrics.n_cached_tokens);
    json_write_field_real(json, "output_tokens", api->metrics.n_generated_tokens);
    json_write_field_int(json, "first_tokens", (int64_t)api->metrics.ttft.n);
    write_quantiles(feed, "ttft_ms", &api->dashboard->live.ttft);
    write_quantiles(feed, "itl_ms", &api->dashboard->live.itl);
}

/* ---- steps ---- */

static void write_step(const struct feed *feed, const struct step_record *step) {
    json_write_array(feed->json);
    json_write_int(feed->json, step->number);
    write_time(feed, step->start_ns);
    json_write_int(feed->json, (step->end_ns - step->start_ns) / 1000);
    json_write_int(feed->json, step->n_prefill_rows);
    json_write_int(feed->json, step->n_decode_rows);
    json_write_int(feed->json, step->decode_ns / 1000);
    json_write_array(feed->json);
    for (int i = 0; i < step->n_parts; i++) {
        json_write_int(feed->json, (int64_t)step->parts[i].request_id);
        json_write_int(feed->json, step->parts[i].n_rows);
        json_write_int(feed->json, step->parts[i].from);
    }
    json_write_end_array(feed->json);
    json_write_int(feed->json, step->n_others);
    json_write_int(feed->json, step->n_other_rows);
    json_write_int(feed->json, step->is_abandoned);
    write_hundredths(feed, step->prefill.flops / 1e9);
    write_hundredths(feed, step->prefill.bytes_read / 1e6);
    write_hundredths(feed, step->decode.flops / 1e9);
    write_hundredths(feed, step->decode.bytes_read / 1e6);
    json_write_end_array(feed->json);
}

static void write_steps(const struct feed *feed, int64_t since) {
    static const char fields[] = "[\"number\",\"start_us\",\"took_us\",\"prefill_rows\",\"decode_rows\",\"decode_us\","
                                 "\"parts\",\"others\",\"other_rows\",\"abandoned\",\"prefill_gflop\",\"prefill_mb\","
                                 "\"decode_gflop\",\"decode_mb\"]";
    const struct step_history *steps = engine_steps(feed->api->engine);
    int64_t last = step_history_last(steps), max = since < 0 ? FIRST_STEPS : MAX_STEPS;
    struct step_record step;
    json_write_key(feed->json, "step_fields");
    json_write_raw(feed->json, fields, sizeof fields - 1);
    json_write_field_array(feed->json, "steps");
    if (since < last - max) since = last - max;
    if (since < 0) since = 0;
    for (int64_t number = since + 1; number <= last; number++)
        if (step_history_read(steps, number, &step)) write_step(feed, &step);
    json_write_end_array(feed->json);
    json_write_field_int(feed->json, "last_step", last);
}

/* ---- requests ---- */

static void write_stats(const struct feed *feed, const struct phase_stats *stats) {
    struct json_write *json = feed->json;
    write_field_time(feed, "submitted_us", stats->submitted_ns);
    write_field_time(feed, "admitted_us", stats->admitted_ns);
    write_field_time(feed, "predicted_us", stats->predicted_ns);
    write_field_time(feed, "prefill_start_us", stats->prefill_start_ns);
    write_field_time(feed, "prefill_end_us", stats->prefill_end_ns);
    write_field_time(feed, "first_token_us", stats->first_token_ns);
    write_field_time(feed, "last_token_us", stats->last_token_ns);
    json_write_field_int(json, "prompt_tokens", stats->n_prompt_tokens);
    json_write_field_int(json, "done_tokens", stats->n_done_tokens);
    json_write_field_int(json, "cached_tokens", stats->n_cached_tokens);
    json_write_field_int(json, "preemptions", stats->n_preemptions);
    json_write_field_array(json, "phases_us"); /* in the order of phase_names */
    for (int i = 0; i < N_PHASES; i++) json_write_int(json, stats->part_ns[i] / 1000);
    json_write_end_array(json);
    json_write_field_int(json, "unaccounted_us", phase_stats_unaccounted_ns(stats) / 1000);
}

static void write_key_name(struct json_write *json, const char *name) {
    if (name[0])
        json_write_field_text(json, "key", name);
    else
        json_write_field_null(json, "key");
}

static void write_ended(const struct feed *feed, const struct api_record *record) {
    struct json_write *json = feed->json;
    json_write_object(json);
    json_write_field_text(json, "id", record->id);
    json_write_field_int(json, "run", (int64_t)record->request_id);
    json_write_field_text(json, "path", record->path);
    write_key_name(json, record->key_name);
    json_write_field_text(json, "class", message_class_name(record->class_));
    json_write_field_text(json, "state", record->was_run ? "finished" : "refused");
    json_write_field_text(json, "end", request_metrics_end_name(record->end));
    json_write_field_int(json, "status", record->http_code);
    json_write_field_int(json, "output_tokens", record->n_completion);
    write_field_time(feed, "received_us", record->received_ns);
    write_field_time(feed, "ended_us", record->ended_ns);
    if (record->was_run) write_stats(feed, &record->stats);
    json_write_end_object(json);
}

static const char *state_of(const struct phase_stats *stats) {
    if (stats->open == PHASE_QUEUE) return "queued";
    return stats->first_token_ns ? "decode" : "prefill";
}

static void write_running(const struct feed *feed, const struct api_prompt *prompt) {
    const struct api_call *call = prompt->call;
    struct json_write *json = feed->json;
    struct phase_stats stats;
    int n_output = 0;
    bool is_known = prompt->state == PROMPT_ADMITTED;
    if (is_known) engine_client_look(prompt->request, &stats);
    for (int c = 0; c < call->params.n; c++) n_output += prompt->choices[c].n_tokens;
    json_write_object(json);
    json_write_field_text(json, "id", call->id);
    json_write_field_int(json, "run", is_known ? (int64_t)prompt->request->id : 0);
    json_write_field_text(json, "path", call->path);
    write_key_name(json, call->terms.name);
    json_write_field_text(json, "class", message_class_name(call->params.class_));
    json_write_field_text(json, "state", is_known ? state_of(&stats) : "preparing");
    json_write_field_int(json, "output_tokens", n_output);
    write_field_time(feed, "received_us", call->received_ns);
    if (is_known) {
        int64_t at_ns = feed->now_ns > stats.open_ns ? feed->now_ns : stats.open_ns;
        stats.n_prompt_tokens = prompt->n_ids;
        phase_stats_finish(&stats, at_ns); /* as far as it is */
        write_stats(feed, &stats);
    }
    json_write_end_object(json);
}

static void write_requests(const struct feed *feed, int64_t since) {
    const struct api_history *history = &feed->api->history;
    int n_running = 0, n_left_out = 0;
    int64_t max = since < 0 ? FIRST_REQUESTS : MAX_REQUESTS;
    if (since < history->n_ever - max) since = history->n_ever - max;
    if (since < 0) since = 0;
    json_write_field_array(feed->json, "ended");
    for (int64_t i = since; i < history->n_ever; i++) write_ended(feed, &history->records[i % API_HISTORY_MAX]);
    json_write_end_array(feed->json);
    json_write_field_int(feed->json, "next_request", history->n_ever);
    json_write_field_array(feed->json, "running_requests");
    for (const struct api_call *call = feed->api->calls; call; call = call->next)
        for (int i = 0; i < call->n_prompts; i++) {
            if (call->prompts[i].state == PROMPT_HOME) continue;
            if (n_running++ < MAX_RUNNING)
                write_running(feed, &call->prompts[i]);
            else
                n_left_out++;
        }
    json_write_end_array(feed->json);
    json_write_field_int(feed->json, "left_out", n_left_out);
}

/* ---- blocks ---- */

/* Asked for again only when a step has changed them: a command ends what an idle engine measures. */
static void ask_for_map(struct api_server *api) {
    struct api_dashboard *dashboard = api->dashboard;
    int state = atomic_load_explicit(&dashboard->map.state, memory_order_acquire);
    int64_t last = step_history_last(engine_steps(api->engine));
    if (state == BLOCK_MAP_ASKED || (state == BLOCK_MAP_FILLED && dashboard->map_step == last)) return;
    if (engine_client_ask_map(api->engine, &dashboard->map) == STATUS_OK) dashboard->map_step = last;
}

static void write_blocks(const struct feed *feed) {
    static const char uses[] = "[\"free\",\"reusable\",\"held\",\"shared\",\"pinned\"]";
    struct json_write *json = feed->json;
    const struct block_map *map = &feed->api->dashboard->map;
    if (atomic_load_explicit(&map->state, memory_order_acquire) != BLOCK_MAP_FILLED) return;
    json_write_field_object(json, "map");
    json_write_key(json, "uses");
    json_write_raw(json, uses, sizeof uses - 1);
    json_write_field_int(json, "blocks", map->n_blocks);
    json_write_field_int(json, "cell_blocks", map->cell_blocks);
    json_write_field_array(json, "cells");
    for (int i = 0; i < map->n_cells; i++)
        for (int use = 0; use < BLOCK_N_USES; use++) json_write_int(json, map->counts[i][use]);
    json_write_end_array(json);
    json_write_end_object(json);
}

/* ---- replies ---- */

static void write_server(const struct feed *feed, const struct engine_stats *stats) {
    const struct api_options *options = &feed->api->options;
    struct json_write *json = feed->json;
    json_write_field_text(json, "version", KVICK_VERSION);
    json_write_field_text(json, "model", options->model_names[0]);
    json_write_field_flag(json, "demo", options->is_demo);
    json_write_field_flag(json, "chunked", !stats->is_unchunked);
    json_write_field_flag(json, "needs_key", feed->api->auth.is_set);
    double peak_gops = options->peak_gops > 0 ? options->peak_gops : stats->int8_peak_ops / 1e9;
    json_write_field_real(json, "peak_gops", peak_gops); /* 0: not measured */
    json_write_field_real(json, "read_gb_s", options->read_gb_s);
    json_write_field_flag(json, "read_is_guessed", options->is_read_guessed);
    json_write_field_array(json, "phase_names");
    for (int i = 0; i < N_PHASES; i++) {
        const char *name = phase_stats_name((enum phase)i);
        json_write_text(json, name, strlen(name));
    }
    json_write_end_array(json);
}

/* A number of the query; -1: it is absent or none. */
static int64_t query_number(struct http_exchange *exchange, const char *name) {
    const char *text = http_exchange_query(exchange, name);
    int64_t value;
    return text && str_read_count(text, INT64_MAX / 2, &value) ? value : -1;
}

void api_dashboard_reply(struct api_server *api, struct http_exchange *exchange) {
    struct json_write json;
    struct str body;
    struct timespec wall;
    struct feed feed = {api, &json, clock_now_ns()};
    struct engine_stats stats = engine_read_stats(api->engine);
    bool wants_map = query_number(exchange, "map") == 1;
    clock_gettime(CLOCK_REALTIME, &wall);
    api_reply_begin(&json, &body);
    write_field_time(&feed, "now_us", feed.now_ns);
    json_write_field_int(&json, "wall_ms", (int64_t)wall.tv_sec * 1000 + wall.tv_nsec / 1000000);
    write_server(&feed, &stats);
    write_now(&feed, &stats);
    diagnosis_write(api->diagnosis, feed.now_ns, &json);
    write_samples(&feed, query_number(exchange, "sample"));
    write_requests(&feed, query_number(exchange, "request"));
    write_steps(&feed, query_number(exchange, "step"));
    if (wants_map) write_blocks(&feed);
    http_exchange_set_header(exchange, "Cache-Control", "no-store");
    api_reply_end(exchange, API_OPENAI, &json, &body);
    if (wants_map) ask_for_map(api);
}

/* A page of another origin can send this only with the server's leave: the type is none that a form may have. */
static bool is_json(const struct http_exchange *exchange) {
    const char *type = http_exchange_header(exchange, "Content-Type");
    return type && strncmp(type, "application/json", 16) == 0;
}

void api_dashboard_reply_chunking(struct api_server *api, struct http_exchange *exchange) {
    struct api_fault fault = {0};
    struct json_write json;
    struct str body;
    int64_t chunked = query_number(exchange, "chunked");
    if (!api->options.is_demo)
        api_fault_set(&fault, 403, "not_a_demo", NULL, "prompts are unchunked on demand only with serve --demo");
    else if (!is_json(exchange))
        api_fault_set(&fault, 400, NULL, NULL, "Content-Type must be application/json");
    else if (chunked != 0 && chunked != 1)
        api_fault_set(&fault, 400, NULL, "chunked", "'chunked' of the query must be 0 or 1");
    else if (engine_client_set_chunked(api->engine, chunked == 1))
        api_fault_from_status(&fault, STATUS_BUSY, NULL);
    if (fault.http_code) {
        api_fault_reply(&fault, API_OPENAI, exchange);
        return;
    }
    api_reply_begin(&json, &body);
    json_write_field_flag(&json, "chunked", chunked == 1);
    api_reply_end(exchange, API_OPENAI, &json, &body);
}
