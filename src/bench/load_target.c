#include "bench/load_target.h"

#include <stdio.h>
#include <string.h>

#include <jansson.h>

#include "base/mem.h"

#define MAX_REPLY_BYTES ((size_t)8 << 20)
#define PROBE_TOKENS 2
#define PROBE_MS 120000

/* ---- address ---- */

static enum status set_url(struct load_target *target, const char *url, struct status_note *note) {
    size_t n = strlen(url);
    if (strncmp(url, "http://", 7) != 0 && strncmp(url, "https://", 8) != 0)
        return status_fail(note, STATUS_INVALID, "--url: '%s' does not begin with http:// or https://", url);
    while (n && url[n - 1] == '/') n--;
    bool has_version = n > 3 && memcmp(url + n - 3, "/v1", 3) == 0;
    if (n + 4 > sizeof target->url)
        return status_fail(note, STATUS_INVALID, "--url: more than %zu bytes", sizeof target->url - 4);
    snprintf(target->url, sizeof target->url, "%.*s%s", (int)n, url, has_version ? "" : "/v1");
    return STATUS_OK;
}

/* ---- models ---- */

static int int_at(const json_t *json, const char *key) {
    json_int_t value = json_integer_value(json_object_get(json, key));
    return value > 0 && value <= INT32_MAX ? (int)value : 0;
}

static json_t *fetch_json(struct load_client *client, const char *path, int *out_code, struct status_note *note) {
    struct str body;
    str_init(&body, MAX_REPLY_BYTES);
    enum status status = load_client_fetch(client, path, NULL, &body, out_code, note);
    json_t *json = status ? NULL : json_loadb(body.ptr, body.n_bytes, 0, NULL);
    str_deinit(&body);
    if (!status && !json) status_fail(note, STATUS_PEER, "%s: HTTP %d and no JSON", path, *out_code);
    return json;
}

/* The context: vLLM and kvick tell it with the model, llama.cpp with its properties. */
static void read_context(struct load_client *client, struct load_target *target, const json_t *entry) {
    int code = 0;
    if (target->max_context) return;
    target->max_context = int_at(entry, "max_model_len");
    if (target->max_context) return;
    json_t *props = fetch_json(client, "/props", &code, NULL);
    target->max_context = int_at(json_object_get(props, "default_generation_settings"), "n_ctx");
    json_decref(props);
}

static enum status read_models(struct load_client *client, struct load_target *target, const char *wanted,
                               struct status_note *note) {
    int code = 0;
    json_t *json = fetch_json(client, "/v1/models", &code, note);
    const json_t *list = json_object_get(json, "data"), *found = NULL;
    for (size_t i = 0; i < json_array_size(list) && !found; i++) {
        const char *id = json_string_value(json_object_get(json_array_get(list, i), "id"));
        if (id && (!wanted || strcmp(id, wanted) == 0)) found = json_array_get(list, i);
    }
    enum status status = STATUS_OK;
    if (!json)
        status = STATUS_PEER;
    else if (code != 200)
        status = status_fail(note, STATUS_PEER, "%s/models: HTTP %d", target->url, code);
    else if (!found && !wanted)
        status = status_fail(note, STATUS_PEER, "%s/models lists no model; --model names one", target->url);
    if (!status) /* a name that is not listed may still be known, as an alias */
        snprintf(target->model, sizeof target->model, "%s",
                 wanted ? wanted : json_string_value(json_object_get(found, "id")));
    if (!status) read_context(client, target, found);
    json_decref(json);
    return status;
}

/* ---- what it understands ---- */

static enum status probe_once(struct load_client *client, struct load_target *target, struct load_answer *answer,
                              struct status_note *note) {
    const struct load_turn turn = {"user", "Count to ten: one two three"};
    struct load_ask ask = {.turns = &turn, .n_turns = 1, .max_tokens = PROBE_TOKENS, .timeout_ms = PROBE_MS};
    enum status status = load_client_ask(client, &ask, answer, note);
    if (!status) target->is_kvick = answer->has_phases;
    return status;
}

/* From all that may be asked down to the plainest request, until one is answered. */
static enum status probe_endpoint(struct load_client *client, struct load_target *target, enum load_endpoint endpoint,
                                  struct load_answer *answer, struct status_note *note) {
    static const struct {
        bool takes_extras, takes_usage;
    } levels[] = {{true, true}, {false, true}, {true, false}, {false, false}};
    enum status status = STATUS_OK;
    target->endpoint = endpoint;
    for (size_t i = 0; i < sizeof levels / sizeof levels[0] && !status; i++) {
        target->takes_extras = levels[i].takes_extras;
        target->takes_usage = levels[i].takes_usage;
        status = probe_once(client, target, answer, note);
        if (answer->end != LOAD_BAD_REQUEST || answer->code == 404 || answer->code == 401 || answer->code == 403) break;
    }
    return status;
}

static enum status probe(struct load_client *client, struct load_target *target, const char *wanted,
                         struct status_note *note) {
    struct load_answer answer;
    char first[STATUS_NOTE_MAX_BYTES] = "";
    bool may_chat = !wanted || strcmp(wanted, "chat") == 0, may_complete = !wanted || !may_chat;
    enum status status = load_answer_init(&answer, PROBE_TOKENS);
    if (status) status_fail(note, status, "no memory for an answer");
    if (!status && may_chat) {
        status = probe_endpoint(client, target, LOAD_CHAT, &answer, note);
        snprintf(first, sizeof first, "%s", answer.note);
    }
    if (!status && may_complete && answer.end != LOAD_OK && answer.end != LOAD_NO_SERVER)
        status = probe_endpoint(client, target, LOAD_COMPLETION, &answer, note);
    if (!status && answer.end != LOAD_OK)
        status = status_fail(note, STATUS_PEER, "%s gives no answer (%s): %s", target->url,
                             load_answer_end_name(answer.end), may_chat && answer.note[0] == 0 ? first : answer.note);
    load_answer_deinit(&answer);
    return status;
}

enum status load_target_find(struct load_target *target, const struct load_target_wishes *wishes,
                             struct status_note *note) {
    struct load_client *client;
    *target = (struct load_target){.api_key = wishes->api_key, .max_context = wishes->max_context};
    if (wishes->endpoint && strcmp(wishes->endpoint, "chat") != 0 && strcmp(wishes->endpoint, "completions") != 0)
        return status_fail(note, STATUS_INVALID, "--endpoint: '%s' is unknown (known: chat, completions)",
                           wishes->endpoint);
    if (wishes->model && strlen(wishes->model) >= sizeof target->model)
        return status_fail(note, STATUS_INVALID, "--model: the name has more than %zu bytes", sizeof target->model - 1);
    if (wishes->api_key && strlen(wishes->api_key) > 1000)
        return status_fail(note, STATUS_INVALID, "--api-key: more than 1000 bytes");
    enum status status = set_url(target, wishes->url, note);
    if (!status) status = load_client_create(&client, target, 1, note);
    if (status) return status;
    status = read_models(client, target, wishes->model, note);
    if (!status) status = probe(client, target, wishes->endpoint, note);
    load_client_destroy(&client);
    return status;
}
