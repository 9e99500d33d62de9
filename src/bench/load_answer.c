#include "bench/load_answer.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include <jansson.h>

#include "base/mem.h"

#define SPARE_EVENTS 16 /* some servers send more events than tokens */

/* ---- life ---- */

enum status load_answer_init(struct load_answer *answer, int max_tokens) {
    *answer = (struct load_answer){.max_content = max_tokens + SPARE_EVENTS};
    str_init(&answer->text, LOAD_ANSWER_MAX_TEXT_BYTES);
    answer->content_ns = mem_alloc_array((size_t)answer->max_content, sizeof *answer->content_ns);
    answer->ids = mem_alloc_array((size_t)answer->max_content, sizeof *answer->ids);
    load_answer_clear(answer);
    return answer->content_ns && answer->ids ? STATUS_OK : STATUS_NOMEM;
}

void load_answer_deinit(struct load_answer *answer) {
    str_deinit(&answer->text);
    mem_free(answer->content_ns);
    mem_free(answer->ids);
    *answer = (struct load_answer){0};
}

void load_answer_clear(struct load_answer *answer) {
    str_clear(&answer->text);
    *answer = (struct load_answer){.end = LOAD_RUNNING,
                                   .retry_after_s = -1,
                                   .content_ns = answer->content_ns,
                                   .max_content = answer->max_content,
                                   .n_prompt = -1,
                                   .n_cached = -1,
                                   .n_new = -1,
                                   .text = answer->text,
                                   .ids = answer->ids};
}

const char *load_answer_end_name(enum load_end end) {
    static const char *const names[] = {
#define XX(name, text) text,
        LOAD_END_MAP(XX)
#undef XX
    };
    return names[end];
}

/* ---- an event ---- */

static bool fail(struct load_answer *answer, enum load_end end, const char *what, const char *more) {
    answer->end = end;
    snprintf(answer->note, sizeof answer->note, "%s%s%.250s", what, *more ? ": " : "", more);
    return false;
}

static int count_or(const json_t *json, const char *key, int other) {
    const json_t *field = json_object_get(json, key);
    json_int_t value = json_integer_value(field);
    return json_is_integer(field) && value >= 0 && value <= INT32_MAX ? (int)value : other;
}

static void read_phases(struct load_answer *answer, const json_t *table) {
    const json_t *unaccounted = json_object_get(table, "unaccounted_ms");
    if (!json_is_object(table) || !json_is_number(unaccounted)) return;
    answer->has_phases = true;
    answer->unaccounted_ms = json_number_value(unaccounted);
    for (int i = 0; i < N_PHASES; i++) {
        char key[40];
        snprintf(key, sizeof key, "%s_ms", phase_stats_name((enum phase)i));
        answer->phase_ms[i] = json_number_value(json_object_get(table, key));
    }
}

static void read_usage(struct load_answer *answer, const json_t *usage) {
    if (!json_is_object(usage)) return;
    answer->n_prompt = count_or(usage, "prompt_tokens", answer->n_prompt);
    answer->n_new = count_or(usage, "completion_tokens", answer->n_new);
    answer->n_cached = count_or(json_object_get(usage, "prompt_tokens_details"), "cached_tokens", answer->n_cached);
    read_phases(answer, json_object_get(usage, "kvick"));
}

/* llama.cpp counts the reused tokens beside the usage. */
static void read_timings(struct load_answer *answer, const json_t *timings) {
    if (json_is_object(timings)) answer->n_cached = count_or(timings, "cache_n", answer->n_cached);
}

/* Appends; false: the text has become too long. */
static bool add_text(struct load_answer *answer, const json_t *text, bool *has_content) {
    if (!json_is_string(text) || json_string_length(text) == 0) return true;
    *has_content = true;
    if (!str_append(&answer->text, json_string_value(text), json_string_length(text))) return true;
    return fail(answer, LOAD_MALFORMED, "the answer is too long to keep", "");
}

static void add_ids(struct load_answer *answer, const json_t *ids) {
    size_t i;
    json_t *id;
    json_array_foreach((json_t *)(uintptr_t)ids, i, id) {
        if (answer->n_ids < answer->max_content) answer->ids[answer->n_ids++] = (uint32_t)json_integer_value(id);
    }
}

static bool read_choice(struct load_answer *answer, const json_t *choice, int64_t now_ns) {
    const json_t *delta = json_object_get(choice, "delta"), *finish = json_object_get(choice, "finish_reason");
    const json_t *reasoning = json_object_get(delta, "reasoning_content");
    bool has_content = json_array_size(json_object_get(delta, "tool_calls")) > 0;
    /* Servers that give reasoning two names send both. */
    if (!reasoning) reasoning = json_object_get(delta, "reasoning");
    if (!add_text(answer, reasoning, &has_content) ||
        !add_text(answer, json_object_get(delta, "content"), &has_content) ||
        !add_text(answer, json_object_get(choice, "text"), &has_content))
        return false;
    add_ids(answer, json_object_get(choice, "token_ids"));
    if (json_is_string(finish))
        snprintf(answer->finish_reason, sizeof answer->finish_reason, "%s", json_string_value(finish));
    if (!has_content) return true;
    if (answer->n_content == answer->max_content)
        return fail(answer, LOAD_MALFORMED, "more events came than the answer may have tokens", "");
    answer->content_ns[answer->n_content++] = now_ns;
    return true;
}

/* What an error object, or a text in its place, says. */
static const char *error_text(const json_t *error) {
    const json_t *message = json_is_object(error) ? json_object_get(error, "message") : error;
    return json_is_string(message) ? json_string_value(message) : "";
}

bool load_answer_read(struct load_answer *answer, const char *data, size_t n_bytes, int64_t now_ns) {
    if (n_bytes == 6 && memcmp(data, "[DONE]", 6) == 0) {
        answer->is_done = true;
        return true;
    }
    json_error_t where;
    json_t *event = json_loadb(data, n_bytes, 0, &where);
    if (!json_is_object(event)) {
        json_decref(event);
        return fail(answer, LOAD_MALFORMED, "an event is no JSON object", event ? "" : where.text);
    }
    const json_t *error = json_object_get(event, "error"), *choices = json_object_get(event, "choices");
    bool is_read = true;
    if (error && !json_is_null(error)) is_read = fail(answer, LOAD_SERVER_ERROR, "the stream says", error_text(error));
    if (is_read && json_array_size(choices)) is_read = read_choice(answer, json_array_get(choices, 0), now_ns);
    read_usage(answer, json_object_get(event, "usage"));
    read_timings(answer, json_object_get(event, "timings"));
    json_decref(event);
    return is_read;
}

void load_answer_fail(struct load_answer *answer, int code, const char *body, size_t n_bytes) {
    enum load_end end = code == 429 || code == 503 ? LOAD_REFUSED : code >= 500 ? LOAD_SERVER_ERROR : LOAD_BAD_REQUEST;
    char what[40];
    json_t *json = json_loadb(body, n_bytes, 0, NULL);
    const json_t *error = json_object_get(json, "error");
    const char *text = error_text(error ? error : json);
    snprintf(what, sizeof what, "HTTP %d", code);
    fail(answer, end, what, text);
    json_decref(json);
}

/* ---- times ---- */

double load_answer_ttft_ms(const struct load_answer *answer) {
    return answer->n_content ? phase_stats_ms(answer->sent_ns, answer->content_ns[0]) : -1;
}

double load_answer_token_ms(const struct load_answer *answer) {
    int n_tokens = answer->n_new > 0 ? answer->n_new : answer->n_content;
    if (answer->n_content < 2 || n_tokens < 2) return -1;
    return phase_stats_ms(answer->content_ns[0], answer->content_ns[answer->n_content - 1]) / (n_tokens - 1);
}
