#include "api/completion_request.h"

#include <string.h>

#include "api/api_response.h"
#include "base/mem.h"

static bool read_ids(const json_t *list, const char *name, int n_vocab, int max_ids, struct api_prompt *prompt,
                     struct api_fault *fault) {
    size_t n = json_array_size(list), i;
    const json_t *item;
    if (n == 0) return api_fault_set(fault, 400, NULL, name, "'%s' is an empty list of token ids", name);
    if (n > (size_t)max_ids)
        return api_fault_set(fault, 400, "context_length_exceeded", name,
                             "the context holds %d tokens; the prompt has %zu and the answer may have 1", max_ids, n);
    prompt->ids = mem_alloc_array(n, sizeof *prompt->ids);
    if (!prompt->ids) return api_fault_set(fault, 503, "out_of_memory", NULL, "no memory for the prompt");
    json_array_foreach((json_t *)list, i, item) {
        json_int_t id = json_integer_value(item);
        if (!json_is_integer(item) || id < 0 || id >= n_vocab)
            return api_fault_set(fault, 400, NULL, name, "'%s' holds at place %zu %s that is not within 0..%d", name, i,
                                 json_is_integer(item) ? "a token id" : json_read_type(item), n_vocab - 1);
        prompt->ids[prompt->n_ids++] = (uint32_t)id;
    }
    return true;
}

static bool read_prompt(const json_t *item, const char *name, int n_vocab, int max_ids, struct api_prompt *prompt,
                        struct api_fault *fault) {
    if (json_is_array(item)) return read_ids(item, name, n_vocab, max_ids, prompt, fault);
    if (!json_is_string(item))
        return api_fault_set(fault, 400, NULL, name,
                             "'%s' must be a string, a list of token ids, or a list of either, not %s", name,
                             json_read_type(item));
    prompt->text = json_string_value(item);
    prompt->n_bytes = json_string_length(item);
    return true;
}

struct api_prompt *completion_request_prompts(const json_t *json, const char *name, int n_vocab, int max_ids,
                                              int *out_n, struct api_fault *fault) {
    const json_t *field = json_read_field(json, name);
    if (!field || (json_is_array(field) && json_array_size(field) == 0)) {
        api_fault_set(fault, 400, NULL, name, "'%s' is %s", name, field ? "an empty list" : "missing");
        return NULL;
    }
    /* A list of numbers is one prompt; what begins with anything else is a list of prompts. */
    bool is_list = json_is_array(field) && !json_is_number(json_array_get(field, 0));
    size_t n = is_list ? json_array_size(field) : 1;
    if (n > API_MAX_PROMPTS) {
        api_fault_set(fault, 400, NULL, name, "'%s' holds %zu prompts, at most %d are taken", name, n, API_MAX_PROMPTS);
        return NULL;
    }
    struct api_prompt *prompts = mem_alloc_array(n, sizeof *prompts);
    if (!prompts) {
        api_fault_set(fault, 503, "out_of_memory", NULL, "no memory for the request");
        return NULL;
    }
    for (size_t i = 0; i < n; i++) {
        if (read_prompt(is_list ? json_array_get(field, i) : field, name, n_vocab, max_ids, &prompts[i], fault))
            continue;
        api_call_free_prompts(prompts, (int)n, 1);
        return NULL;
    }
    *out_n = (int)n;
    return prompts;
}

bool completion_request_read(struct api_request *request, const char *name, struct api_fault *fault) {
    request->prompts = completion_request_prompts(request->json, name, tokenizer_n_vocab(request->api->tokenizer),
                                                  request->max_ids, &request->n_prompts, fault);
    return request->prompts != NULL;
}

bool completion_request_read_prompts(struct api_request *request, struct api_fault *fault) {
    return completion_request_read(request, "prompt", fault);
}

static bool read_extras(struct api_request *request, struct api_fault *fault) {
    bool adds_special = true;
    if (!json_read_flag(request->json, "echo", &request->extras.has_echo, fault) ||
        !json_read_flag(request->json, "add_special_tokens", &adds_special, fault))
        return false;
    request->extras.is_plain = !adds_special;
    return true;
}

const struct api_ask completion_request = {
    .response = &completion_response, .check = read_extras, .read_prompts = completion_request_read_prompts};
