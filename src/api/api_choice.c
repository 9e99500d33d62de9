#include "api/api_choice.h"

#include <stdio.h>
#include <string.h>

#include "api/api_response.h"
#include "base/mem.h"

#define MAX_TAIL_BYTES 65536

/* A call without marks around it must name one of the request's tools. owner: the call. */
static bool is_tool(const void *owner, const char *name, size_t n_bytes) {
    const struct api_call *call = owner;
    const json_t *tools = json_object_get(call->json, "tools"), *tool;
    size_t i;
    json_array_foreach((json_t *)tools, i, tool) {
        const json_t *given = json_object_get(json_object_get(tool, "function"), "name");
        if (json_is_string(given) && json_string_length(given) == n_bytes &&
            memcmp(json_string_value(given), name, n_bytes) == 0)
            return true;
    }
    return false;
}

static bool may_call_tools(const struct api_call *call) {
    const json_t *choice = json_object_get(call->json, "tool_choice");
    bool is_none = json_is_string(choice) && strcmp(json_string_value(choice), "none") == 0;
    return call->kind == API_CHAT && json_array_size(json_object_get(call->json, "tools")) > 0 && !is_none;
}

bool api_choice_init_all(struct api_call *call, struct api_prompt *prompt) {
    struct answer_rules rules = call->kind == API_CHAT ? call->api->answer_rules : (struct answer_rules){0};
    bool has_tools = may_call_tools(call);
    /* A demanded form is the whole answer: no marks, no reasoning. A forced call is its bare object. */
    if (call->params.grammar) {
        has_tools = call->params.is_call_forced;
        rules = (struct answer_rules){.form = has_tools ? ANSWER_LLAMA : ANSWER_HERMES};
    }
    /* Marks of these two are special tokens. */
    bool has_special_marks = has_tools && (rules.form == ANSWER_LLAMA || rules.form == ANSWER_MISTRAL);
    unsigned flags = call->params.shows_special || has_special_marks ? DETOKENIZER_SHOW_SPECIAL : 0;
    prompt->choices = mem_alloc_array((size_t)call->params.n, sizeof *prompt->choices);
    if (!prompt->choices) return false;
    for (int i = 0; i < call->params.n; i++) {
        struct api_choice *choice = &prompt->choices[i];
        detokenizer_init(&choice->detokenizer, call->api->tokenizer, flags);
        stop_match_init(&choice->stop, call->params.stops, call->params.n_stops, call->params.keeps_stop);
        answer_init(&choice->answer);
        answer_parse_init(&choice->parse, rules, has_tools, is_tool, call);
    }
    return true;
}

void api_choice_deinit_all(struct api_prompt *prompt, int n) {
    for (int i = 0; prompt->choices && i < n; i++) {
        stop_match_deinit(&prompt->choices[i].stop);
        answer_parse_deinit(&prompt->choices[i].parse);
        answer_deinit(&prompt->choices[i].answer);
    }
    mem_free(prompt->choices);
}

/* Of what is new since there were n_parts, the last one with n_bytes: ids of calls, and how many tokens made it. */
static void mark_new(struct api_call *call, struct api_choice *choice, int n_parts, size_t n_bytes) {
    struct answer *answer = &choice->answer;
    for (int i = n_parts ? n_parts - 1 : 0; i < answer->n_parts; i++) {
        struct answer_part *part = &answer->parts[i];
        if (i >= n_parts || part->text.n_bytes > n_bytes) part->n_tokens = choice->n_tokens;
        if (i >= n_parts && part->kind == ANSWER_IS_CALL)
            snprintf(part->id, sizeof part->id, "call_%016llx", (unsigned long long)api_server_random(call->api));
    }
}

enum status api_choice_read(struct api_call *call, struct api_choice *choice, const struct str *words, bool is_end) {
    struct answer *answer = &choice->answer;
    const struct answer_part *last = answer_last(answer);
    int n_known = answer->n_parts;
    size_t n_known_bytes = last ? last->text.n_bytes : 0;
    struct str certain;
    str_init(&certain, ANSWER_MAX_BYTES);
    bool is_thinking = choice->parse.state == ANSWER_REASONING;
    enum status status = stop_match_push(&choice->stop, words->ptr, words->n_bytes, &certain);
    if (!status && is_end) status = stop_match_finish(&choice->stop, &certain);
    if (!status) status = answer_parse_push(&choice->parse, certain.ptr, certain.n_bytes, answer);
    if (!status && (is_end || choice->stop.found >= 0)) status = answer_parse_finish(&choice->parse, answer);
    /* Of calls one after the other only the first is wanted: it ends the answer. */
    choice->is_complete = call->params.has_one_call && answer->n_calls > 0 && choice->parse.state == ANSWER_AFTER_CALL;
    choice->n_reasoning_tokens += !is_end && (is_thinking || choice->parse.state == ANSWER_REASONING);
    mark_new(call, choice, n_known, n_known_bytes);
    str_deinit(&certain);
    return status;
}

void api_choice_begin(struct api_prompt *prompt) {
    static const char mark[] = "<think>";
    struct api_call *call = prompt->call;
    struct str tail;
    if (call->kind != API_CHAT || !call->api->answer_rules.has_reasoning || call->params.grammar) return;
    str_init(&tail, MAX_TAIL_BYTES);
    bool has_memory = true;
    for (int i = prompt->n_ids > 8 ? prompt->n_ids - 8 : 0; i < prompt->n_ids; i++) {
        size_t n_bytes;
        const char *text = tokenizer_text_of(call->api->tokenizer, (int32_t)prompt->ids[i], &n_bytes);
        has_memory = has_memory && !str_append(&tail, text ? text : "", text ? n_bytes : 0);
    }
    size_t n = tail.n_bytes, n_mark = sizeof mark - 1;
    while (n && (tail.ptr[n - 1] == '\n' || tail.ptr[n - 1] == ' ')) n--;
    bool is_thinking = n >= n_mark && memcmp(tail.ptr + n - n_mark, mark, n_mark) == 0;
    for (int i = 0; has_memory && is_thinking && i < call->params.n; i++)
        answer_parse_begin_thinking(&prompt->choices[i].parse);
    str_deinit(&tail);
}
