/* The first byte chooses the route; the rest is the body of a chat's or a completion's request. What is refused says
 * why; what is accepted is within its bounds. */
#include <math.h>
#include <stdint.h>

#include "api/completion_request.h"
#include "base/mem.h"

#define N_VOCAB 1000
#define MAX_IDS 4096

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

static void check_params(const struct api_params *params) {
    const struct sampling *sampling = &params->sampling;
    REQUIRE(params->n >= 1 && params->n <= API_MAX_CHOICES && params->max_tokens >= -1 && params->min_tokens >= 0);
    REQUIRE(isfinite(sampling->temperature) && sampling->temperature >= 0);
    REQUIRE(sampling->top_p > 0 && sampling->top_p <= 1 && sampling->top_k >= 0);
    REQUIRE(params->n_stops >= 0 && params->n_stops <= API_MAX_STOPS);
    for (int i = 0; i < params->n_stops; i++)
        REQUIRE(params->stops[i].n_bytes > 0 && params->stops[i].n_bytes <= API_MAX_STOP_BYTES);
    for (int i = 0; i < params->n_stop_ids; i++) REQUIRE(params->stop_ids[i] < N_VOCAB);
    for (int i = 0; i < sampling->n_biases; i++)
        REQUIRE(sampling->biases[i].id < N_VOCAB && fabsf(sampling->biases[i].bias) <= 100);
}

static void read_prompts(const json_t *json) {
    struct api_fault fault = {0};
    int n = 0;
    struct api_prompt *prompts = completion_request_prompts(json, "prompt", N_VOCAB, MAX_IDS, &n, &fault);
    REQUIRE((prompts != NULL) == (fault.http_code == 0));
    for (int i = 0; prompts && i < n; i++) {
        REQUIRE(prompts[i].text || (prompts[i].n_ids > 0 && prompts[i].n_ids <= MAX_IDS));
        for (int id = 0; id < prompts[i].n_ids; id++) REQUIRE(prompts[i].ids[id] < N_VOCAB);
    }
    api_call_free_prompts(prompts, n, 1);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes) {
    struct api_fault fault = {0};
    struct api_params params = {0};
    if (n_bytes == 0) return 0;
    enum api_kind kind = data[0] & 1 ? API_CHAT : API_COMPLETION;
    json_t *json = json_read_object((const char *)data + 1, n_bytes - 1, &fault);
    REQUIRE((json != NULL) == (fault.http_code == 0));
    if (json) {
        bool is_read = api_params_read(&params, json, kind, N_VOCAB, &fault);
        REQUIRE(is_read == (fault.http_code == 0));
        if (is_read) check_params(&params);
        read_prompts(json);
        api_params_deinit(&params);
        json_decref(json);
    }
    REQUIRE(fault.http_code == 0 || fault.message[0]);
    REQUIRE(mem_n_live() == 0);
    return 0;
}
