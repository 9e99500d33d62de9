#include "api/api_response.h"

/* The answers of /v1/cache/warm: what of each prefix was there, was computed, and is pinned. */

static void write_prefix(struct json_write *json, const struct api_call *call, const struct request *request) {
    int block_tokens = call->api->options.block_tokens, n_cached = request->stats.n_cached_tokens;
    const struct request_pin *pin = &request->pin;
    json_write_object(json);
    json_write_field_int(json, "prompt_tokens", request->n_prompt);
    json_write_field_int(json, "cached_tokens", n_cached);
    json_write_field_int(json, "computed_tokens", request->n_prompt - n_cached);
    json_write_field_flag(json, "pinned", pin->n_tokens > 0);
    json_write_field_int(json, "pinned_tokens", pin->n_tokens);
    json_write_field_int(json, "pinned_blocks", pin->n_tokens / block_tokens);
    if (pin->n_tokens)
        json_write_field_int(json, "ttl_s", call->extras.pin_ns / 1000000000);
    else
        json_write_field_null(json, "ttl_s");
    if (pin->is_full)
        json_write_field_text(json, "reason", "pin_limit");
    else if (call->extras.pin_ns && !pin->n_tokens)
        json_write_field_text(json, "reason", "no_full_block");
    else
        json_write_field_null(json, "reason");
    json_write_end_object(json);
}

static enum status write_whole(const struct api_call *call, struct str *out) {
    struct request_pin all = {0};
    struct json_write json;
    for (int i = 0; i < call->n_prompts; i++) {
        const struct request_pin *pin = &call->prompts[i].request->pin;
        if (all.n_all_blocks < pin->n_all_blocks) all.n_all_blocks = pin->n_all_blocks; /* whichever was the last */
        all.max_blocks = pin->max_blocks;
    }
    json_write_init(&json, out);
    api_response_write_head(&json, call, "cache.warm");
    json_write_field_array(&json, "data");
    for (int i = 0; i < call->n_prompts; i++) write_prefix(&json, call, call->prompts[i].request);
    json_write_end_array(&json);
    if (call->extras.pin_ns) {
        json_write_field_int(&json, "pinned_blocks", all.n_all_blocks);
        json_write_field_int(&json, "max_pinned_blocks", all.max_blocks);
    }
    api_response_write_usage(&json, call);
    json_write_end_object(&json);
    return json_write_finish(&json);
}

const struct api_response warm_response_chat = {
    .id_prefix = "warm-", .shape = API_OPENAI, .kind = API_CHAT, .write_whole = write_whole};
const struct api_response warm_response_text = {
    .id_prefix = "warm-", .shape = API_OPENAI, .kind = API_COMPLETION, .write_whole = write_whole};
