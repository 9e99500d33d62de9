#include "api/api_reply.h"

void api_reply_begin(struct json_write *json, struct str *body) {
    str_init(body, API_REPLY_MAX_BYTES);
    json_write_init(json, body);
    json_write_object(json);
}

void api_reply_end(struct http_exchange *exchange, enum api_shape shape, struct json_write *json, struct str *body) {
    json_write_end_object(json);
    api_reply_json(exchange, shape, json, body);
}

void api_reply_json(struct http_exchange *exchange, enum api_shape shape, const struct json_write *json,
                    struct str *body) {
    struct api_fault fault;
    if (json_write_finish(json)) {
        api_fault_set(&fault, 503, "out_of_memory", NULL, "no memory for the reply");
        api_fault_reply(&fault, shape, exchange);
    } else {
        http_exchange_reply(exchange, 200, "application/json", body->ptr, body->n_bytes);
    }
    str_deinit(body);
}
