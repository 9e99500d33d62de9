#include "api/api_response.h"

/* The answers of /v1/embeddings.   Source: OpenAI's API. */

/* Four characters for every three bytes.   Source: RFC 4648, 4. */
static void write_base64(struct json_write *json, const uint8_t *bytes, size_t n_bytes) {
    static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    struct str text;
    str_init(&text, n_bytes * 2 + 4);
    for (size_t i = 0; !json->status && i < n_bytes; i += 3) {
        size_t n = n_bytes - i < 3 ? n_bytes - i : 3;
        uint32_t bits = (uint32_t)bytes[i] << 16;
        if (n > 1) bits |= (uint32_t)bytes[i + 1] << 8;
        if (n > 2) bits |= bytes[i + 2];
        char four[4];
        for (size_t k = 0; k < 4; k++) four[k] = k <= n ? letters[(bits >> (18 - 6 * k)) & 63] : '=';
        json->status = str_append(&text, four, sizeof four);
    }
    json_write_text(json, text.ptr, text.n_bytes);
    str_deinit(&text);
}

static enum status write_whole(const struct api_call *call, struct str *out) {
    int d_model = engine_model(call->api->engine)->d_model;
    struct json_write json;
    json_write_init(&json, out);
    json_write_object(&json);
    json_write_field_text(&json, "object", "list");
    json_write_field_array(&json, "data");
    for (int p = 0; p < call->n_prompts; p++) {
        const float *vector = call->prompts[p].request->embedding;
        json_write_object(&json);
        json_write_field_text(&json, "object", "embedding");
        json_write_field_int(&json, "index", p);
        json_write_key(&json, "embedding");
        if (call->extras.is_base64) {
            write_base64(&json, (const uint8_t *)vector, (size_t)d_model * sizeof *vector);
        } else {
            json_write_array(&json);
            for (int i = 0; i < d_model; i++) json_write_real(&json, (double)vector[i]);
            json_write_end_array(&json);
        }
        json_write_end_object(&json);
    }
    json_write_end_array(&json);
    json_write_field_text(&json, "model", call->api->options.model_names[0]);
    api_response_write_usage(&json, call);
    json_write_end_object(&json);
    return json_write_finish(&json);
}

const struct api_response embedding_response = {
    .id_prefix = "embd-", .shape = API_OPENAI, .kind = API_EMBEDDING, .write_whole = write_whole};
