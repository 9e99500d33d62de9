#include <string.h>

#include "api/api_response.h"
#include "api/completion_request.h"

/* The JSON of /v1/embeddings -> prompts. A vector is the mean of the prompt's last hidden states, of length 1. An input
 * is a text, ids, or a list of either; special tokens in a text stay text.   Source: OpenAI's API. */

static bool read_form(struct api_request *request, struct api_fault *fault) {
    int64_t d_model = engine_model(request->api->engine)->d_model, dimensions = d_model;
    const char *form = "float";
    size_t n_form = 5;
    if (!json_read_text(request->json, "encoding_format", 32, &form, &n_form, fault) ||
        !json_read_int(request->json, "dimensions", 1, INT32_MAX, &dimensions, fault))
        return false;
    request->extras.is_base64 = strcmp(form, "base64") == 0;
    if (!request->extras.is_base64 && strcmp(form, "float") != 0)
        return api_fault_set(fault, 400, NULL, "encoding_format", "'encoding_format' is '%.32s', not float or base64",
                             form);
    if (dimensions != d_model)
        return api_fault_set(fault, 400, "unsupported_parameter", "dimensions",
                             "'dimensions' is %lld; this model's vectors have %lld, which cannot be cut",
                             (long long)dimensions, (long long)d_model);
    return true;
}

static bool read_prompts(struct api_request *request, struct api_fault *fault) {
    return completion_request_read(request, "input", fault);
}

const struct api_ask embedding_request = {
    .response = &embedding_response, .check = read_form, .read_prompts = read_prompts};
