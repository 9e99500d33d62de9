#include "api/api_params.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "api/grammar_request.h"
#include "base/mem.h"

#define MAX_TOKENS INT_MAX

/* ---- numbers ---- */

static bool read_float(const json_t *request, const char *name, double min, double max, float *value,
                       struct api_fault *fault) {
    double number = (double)*value;
    if (!json_read_real(request, name, min, max, &number, fault)) return false;
    *value = (float)number;
    return true;
}

static bool read_small(const json_t *request, const char *name, int min, int max, int *value, struct api_fault *fault) {
    int64_t number = *value;
    if (!json_read_int(request, name, min, max, &number, fault)) return false;
    *value = (int)number;
    return true;
}

/* Any 64-bit seed; negative ones keep their bits. Without one every request gets another. */
static bool read_seed(struct api_params *params, const json_t *request, struct api_fault *fault) {
    int64_t seed = 0;
    params->has_seed = json_read_field(request, "seed") != NULL;
    if (!json_read_int(request, "seed", INT64_MIN, INT64_MAX, &seed, fault)) return false;
    params->sampling.seed = (uint64_t)seed;
    return true;
}

static bool read_sampling(struct api_params *params, const json_t *request, struct api_fault *fault) {
    struct sampling *sampling = &params->sampling;
    int top_k = 0;
    if (!read_float(request, "temperature", 0, 2, &sampling->temperature, fault) ||
        !read_float(request, "top_p", 0, 1, &sampling->top_p, fault) ||
        !read_float(request, "min_p", 0, 1, &sampling->min_p, fault) ||
        !read_float(request, "presence_penalty", -2, 2, &sampling->presence_penalty, fault) ||
        !read_float(request, "frequency_penalty", -2, 2, &sampling->frequency_penalty, fault) ||
        !read_float(request, "repetition_penalty", 1e-3, 100, &sampling->repetition_penalty, fault) ||
        !read_small(request, "top_k", -1, INT_MAX, &top_k, fault) || !read_seed(params, request, fault))
        return false;
    sampling->top_k = top_k < 0 ? 0 : top_k; /* -1 and 0: all */
    if (sampling->top_p == 0)
        return api_fault_set(fault, 400, NULL, "top_p", "'top_p' is 0, which leaves no token; it must be above 0");
    return true;
}

/* ---- ids ---- */

static bool read_biases(struct api_params *params, const json_t *request, int n_vocab, struct api_fault *fault) {
    const json_t *field = json_read_field(request, "logit_bias");
    const char *key;
    json_t *value;
    if (!field) return true;
    if (!json_is_object(field))
        return api_fault_set(fault, 400, NULL, "logit_bias", "'logit_bias' must be an object of token ids, not %s",
                             json_read_type(field));
    size_t n = json_object_size(field);
    if (n > SAMPLER_MAX_BIASES)
        return api_fault_set(fault, 400, NULL, "logit_bias", "'logit_bias' has %zu entries, at most %d are taken", n,
                             SAMPLER_MAX_BIASES);
    params->biases = mem_alloc_array(n ? n : 1, sizeof *params->biases);
    if (!params->biases) return api_fault_set(fault, 503, "out_of_memory", NULL, "no memory for the request");
    json_object_foreach((json_t *)field, key, value) {
        struct logit_bias *bias = &params->biases[params->sampling.n_biases];
        int64_t id;
        if (!str_read_count(key, n_vocab - 1, &id))
            return api_fault_set(fault, 400, NULL, "logit_bias", "'logit_bias' names token '%.20s', not within 0..%d",
                                 key, n_vocab - 1);
        bias->id = (uint32_t)id;
        double number = json_number_value(value);
        if (!json_is_number(value) || !(number >= -100 && number <= 100))
            return api_fault_set(fault, 400, NULL, "logit_bias",
                                 "'logit_bias' of token %u must be a number within -100..100", bias->id);
        bias->bias = (float)number;
        params->sampling.n_biases++;
    }
    params->sampling.biases = params->biases;
    return true;
}

static bool read_stop_ids(struct api_params *params, const json_t *request, int n_vocab, struct api_fault *fault) {
    const json_t *field = json_read_field(request, "stop_token_ids"), *item;
    size_t i;
    if (!field) return true;
    /* The model's own end tokens need room beside them. */
    size_t max_ids = REQUEST_MAX_STOP_TOKENS / 2;
    if (!json_is_array(field) || json_array_size(field) > max_ids)
        return api_fault_set(fault, 400, NULL, "stop_token_ids", "'stop_token_ids' must be a list of at most %zu ids",
                             max_ids);
    json_array_foreach((json_t *)field, i, item) {
        json_int_t id = json_integer_value(item);
        if (!json_is_integer(item) || id < 0 || id >= n_vocab)
            return api_fault_set(fault, 400, NULL, "stop_token_ids",
                                 "'stop_token_ids' holds an id that is not within 0..%d", n_vocab - 1);
        params->stop_ids[params->n_stop_ids++] = (uint32_t)id;
    }
    return true;
}

/* ---- stops ---- */

static bool add_stop(struct api_params *params, const json_t *item, struct api_fault *fault) {
    if (!json_is_string(item))
        return api_fault_set(fault, 400, NULL, "stop", "'stop' must be a string or a list of strings, not %s",
                             json_read_type(item));
    size_t n_bytes = json_string_length(item);
    if (n_bytes == 0) return api_fault_set(fault, 400, NULL, "stop", "'stop' holds an empty string");
    if (n_bytes > API_MAX_STOP_BYTES)
        return api_fault_set(fault, 400, NULL, "stop", "'stop' holds a string of %zu bytes, at most %d are taken",
                             n_bytes, API_MAX_STOP_BYTES);
    params->stops[params->n_stops++] = (struct stop_string){json_string_value(item), n_bytes};
    return true;
}

static bool read_stops(struct api_params *params, const json_t *request, struct api_fault *fault) {
    const json_t *field = json_read_field(request, "stop"), *item;
    size_t i;
    if (!field) return true;
    if (!json_is_array(field)) return add_stop(params, field, fault);
    if (json_array_size(field) > API_MAX_STOPS)
        return api_fault_set(fault, 400, NULL, "stop", "'stop' holds %zu strings, at most %d are taken",
                             json_array_size(field), API_MAX_STOPS);
    json_array_foreach((json_t *)field, i, item) {
        if (!add_stop(params, item, fault)) return false;
    }
    return true;
}

/* ---- the rest ---- */

/* Chat: a flag and a number; completions: a number. */
static bool read_logprobs(struct api_params *params, const json_t *request, enum api_kind kind,
                          struct api_fault *fault) {
    if (kind == API_COMPLETION) {
        const json_t *wish = json_read_field(request, "logprobs");
        if (!wish || json_is_false(wish)) return true; /* routers say false to both routes */
        params->has_logprobs = true;
        return read_small(request, "logprobs", 0, SAMPLER_MAX_TOP_LOGPROBS, &params->n_top_logprobs, fault);
    }
    if (!json_read_flag(request, "logprobs", &params->has_logprobs, fault) ||
        !read_small(request, "top_logprobs", 0, SAMPLER_MAX_TOP_LOGPROBS, &params->n_top_logprobs, fault))
        return false;
    if (params->n_top_logprobs && !params->has_logprobs)
        return api_fault_set(fault, 400, NULL, "top_logprobs", "'top_logprobs' needs 'logprobs' to be true");
    return true;
}

static bool read_stream(struct api_params *params, const json_t *request, struct api_fault *fault) {
    const json_t *options = json_read_field(request, "stream_options");
    if (!json_read_flag(request, "stream", &params->is_stream, fault)) return false;
    if (!options) return true;
    if (!json_is_object(options))
        return api_fault_set(fault, 400, NULL, "stream_options", "'stream_options' must be an object, not %s",
                             json_read_type(options));
    if (!params->is_stream)
        return api_fault_set(fault, 400, NULL, "stream_options", "'stream_options' needs 'stream' to be true");
    return json_read_flag(options, "include_usage", &params->has_usage_chunk, fault) &&
           json_read_flag(options, "continuous_usage_stats", &params->has_continuous_usage, fault);
}

static bool read_class(struct api_params *params, const json_t *request, struct api_fault *fault) {
    const char *tier = NULL;
    size_t n_tier;
    if (!json_read_text(request, "service_tier", 32, &tier, &n_tier, fault)) return false;
    if (tier && (strcmp(tier, "flex") == 0 || strcmp(tier, "batch") == 0)) params->class_ = REQUEST_BATCH;
    return read_small(request, "priority", INT_MIN, INT_MAX, &params->priority, fault);
}

static bool read_salt(struct api_params *params, const json_t *request, struct api_fault *fault) {
    if (!json_read_text(request, "cache_salt", API_MAX_SALT_BYTES, &params->salt, &params->n_salt, fault)) {
        /* Never a value in the message: a salt is a secret. */
        return api_fault_set(fault, 400, NULL, "cache_salt", "'cache_salt' must be a string of 1 to %d bytes",
                             API_MAX_SALT_BYTES);
    }
    if (params->salt && params->n_salt == 0)
        return api_fault_set(fault, 400, NULL, "cache_salt",
                             "'cache_salt' is empty; leave it out for the shared cache");
    return true;
}

static bool read_max_tokens(struct api_params *params, const json_t *request, enum api_kind kind,
                            struct api_fault *fault) {
    params->max_tokens = kind == API_COMPLETION ? 16 : -1; /* OpenAI's defaults */
    if (!json_read_int(request, "max_tokens", 0, MAX_TOKENS, &params->max_tokens, fault)) return false;
    if (kind == API_CHAT && !json_read_int(request, "max_completion_tokens", 0, MAX_TOKENS, &params->max_tokens, fault))
        return false;
    if (!json_read_int(request, "min_tokens", 0, MAX_TOKENS, &params->min_tokens, fault)) return false;
    if (params->max_tokens >= 0 && params->min_tokens > params->max_tokens)
        return api_fault_set(fault, 400, NULL, "min_tokens", "'min_tokens' is %lld, more than 'max_tokens' %lld",
                             (long long)params->min_tokens, (long long)params->max_tokens);
    return true;
}

/* Fields that would change the answer and are not honoured: to ignore them would be a silent default. */
static bool refuse_unknown_wishes(const json_t *request, struct api_fault *fault) {
    static const char *const names[] = {"suffix",
                                        "use_beam_search",
                                        "bad_words",
                                        "allowed_token_ids",
                                        "truncate_prompt_tokens",
                                        "prompt_logprobs",
                                        "return_tokens_as_token_ids",
                                        "continue_final_message"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const json_t *field = json_read_field(request, names[i]);
        if (!field || json_is_false(field) || (json_is_array(field) && json_array_size(field) == 0) ||
            (json_is_string(field) && json_string_length(field) == 0))
            continue;
        return api_fault_set(fault, 400, "unsupported_parameter", names[i], "'%s' is not supported by this server",
                             names[i]);
    }
    return true;
}

static bool read_flags(struct api_params *params, const json_t *request, struct api_fault *fault) {
    bool skips_special = true, has_cache = true, has_many_calls = true;
    if (!json_read_flag(request, "ignore_eos", &params->ignore_eos, fault) ||
        !json_read_flag(request, "include_stop_str_in_output", &params->keeps_stop, fault) ||
        !json_read_flag(request, "skip_special_tokens", &skips_special, fault) ||
        !json_read_flag(request, "return_token_ids", &params->returns_ids, fault) ||
        !json_read_flag(request, "cache_prompt", &has_cache, fault) ||
        !json_read_flag(request, "return_phases", &params->wants_phases, fault) ||
        !json_read_flag(request, "parallel_tool_calls", &has_many_calls, fault) ||
        !json_read_flag(request, "return_progress", &params->wants_progress, fault))
        return false;
    if (params->wants_progress && !params->is_stream)
        return api_fault_set(fault, 400, NULL, "return_progress", "'return_progress' needs 'stream' to be true");
    params->has_usage_chunk |= params->is_stream && params->wants_phases; /* its place */
    params->shows_special = !skips_special;
    params->has_cache_off = !has_cache;
    params->has_one_call = !has_many_calls;
    return true;
}

/* Of all the rest, vectors know these alone. */
static bool read_embedding(struct api_params *params, const json_t *request, struct api_fault *fault) {
    return read_class(params, request, fault) && read_salt(params, request, fault) &&
           refuse_unknown_wishes(request, fault) &&
           json_read_flag(request, "return_phases", &params->wants_phases, fault) &&
           json_read_text(request, "model", 1024, &params->model, &params->n_model, fault);
}

bool api_params_read(struct api_params *params, const json_t *request, enum api_kind kind, int n_vocab,
                     struct api_fault *fault) {
    int best_of = 0;
    *params = (struct api_params){.n = 1, .sampling = {.temperature = 1, .top_p = 1, .repetition_penalty = 1}};
    if (kind == API_EMBEDDING) return read_embedding(params, request, fault);
    if (!read_small(request, "n", 1, API_MAX_CHOICES, &params->n, fault) ||
        !read_small(request, "best_of", 0, API_MAX_CHOICES, &best_of, fault))
        return false;
    if (best_of && best_of != params->n)
        return api_fault_set(fault, 400, "unsupported_parameter", "best_of",
                             "'best_of' is %d, only 'n' (%d) is supported", best_of, params->n);
    return read_max_tokens(params, request, kind, fault) && read_sampling(params, request, fault) &&
           read_biases(params, request, n_vocab, fault) && read_stops(params, request, fault) &&
           read_stop_ids(params, request, n_vocab, fault) && read_logprobs(params, request, kind, fault) &&
           read_stream(params, request, fault) && read_flags(params, request, fault) &&
           read_class(params, request, fault) && read_salt(params, request, fault) &&
           refuse_unknown_wishes(request, fault) && grammar_request_read(params, request, kind, fault) &&
           json_read_text(request, "model", 1024, &params->model, &params->n_model, fault);
}

void api_params_deinit(struct api_params *params) {
    mem_free(params->biases);
    json_decref(params->grammar);
    params->grammar = NULL;
    params->biases = NULL;
}
