#include "api/api_admin.h"

#include <string.h>

#include "api/api_call.h"
#include "api/api_reply.h"
#include "base/clock.h"

/* What every key has left. */
static void handle_keys(void *owner, struct http_exchange *exchange, const char *parameter) {
    const struct api_server *api = owner;
    struct json_write json;
    struct str body;
    (void)parameter;
    api_reply_begin(&json, &body);
    json_write_field_array(&json, "data");
    api_auth_write(&api->auth, clock_now_ns(), &json);
    json_write_end_array(&json);
    api_reply_end(exchange, API_OPENAI, &json, &body);
}

static void write_call(struct json_write *json, const struct api_call *call, int64_t now_ns) {
    int n_running = 0;
    for (int i = 0; i < call->n_prompts; i++) n_running += call->prompts[i].state == PROMPT_ADMITTED;
    struct api_usage usage = api_call_usage(call);
    json_write_object(json);
    json_write_field_text(json, "id", call->id);
    json_write_field_text(json, "path", call->path);
    if (call->terms.name[0])
        json_write_field_text(json, "key", call->terms.name);
    else
        json_write_field_null(json, "key");
    json_write_field_text(json, "class", message_class_name(call->params.class_));
    json_write_field_int(json, "age_ms", (now_ns - call->received_ns) / 1000000);
    json_write_field_int(json, "prompts", call->n_prompts);
    json_write_field_int(json, "admitted", n_running);
    json_write_field_int(json, "prompt_tokens", usage.n_prompt);
    json_write_field_int(json, "output_tokens", usage.n_completion);
    json_write_end_object(json);
}

/* Who is being answered. */
static void handle_requests(void *owner, struct http_exchange *exchange, const char *parameter) {
    const struct api_server *api = owner;
    int64_t now_ns = clock_now_ns();
    struct json_write json;
    struct str body;
    (void)parameter;
    api_reply_begin(&json, &body);
    json_write_field_array(&json, "data");
    for (const struct api_call *call = api->calls; call; call = call->next) write_call(&json, call, now_ns);
    json_write_end_array(&json);
    api_reply_end(exchange, API_OPENAI, &json, &body);
}

/* What is wrong, and what the engine counts that it was seen by. */
static void handle_diagnosis(void *owner, struct http_exchange *exchange, const char *parameter) {
    const struct api_server *api = owner;
    struct engine_stats stats = engine_read_stats(api->engine);
    struct json_write json;
    struct str body;
    (void)parameter;
    api_reply_begin(&json, &body);
    diagnosis_write(api->diagnosis, clock_now_ns(), &json);
    json_write_field_object(&json, "engine");
    diagnosis_write_sample(&stats, &json);
    json_write_end_object(&json);
    api_reply_end(exchange, API_OPENAI, &json, &body);
}

const struct http_route *api_admin_table(int *out_n) {
    static const struct http_route routes[] = {
        {"GET", "/debug/diagnosis", handle_diagnosis},
        {"GET", "/debug/keys", handle_keys},
        {"GET", "/debug/requests", handle_requests},
    };
    *out_n = (int)(sizeof routes / sizeof routes[0]);
    return routes;
}

bool api_admin_is_path(const char *path) {
    return strcmp(path, "/metrics") == 0 || strncmp(path, "/debug/", 7) == 0;
}
