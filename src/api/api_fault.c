#include "api/api_fault.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/json_write.h"
#include "base/utf8.h"

#define MAX_BODY_BYTES 8192

bool api_fault_set(struct api_fault *fault, int http_code, const char *reason, const char *param, const char *fmt,
                   ...) {
    va_list args;
    *fault = (struct api_fault){.http_code = http_code, .reason = reason};
    if (param) snprintf(fault->param, sizeof fault->param, "%s", param);
    va_start(args, fmt);
    vsnprintf(fault->message, sizeof fault->message, fmt, args);
    va_end(args);
    return false;
}

void api_fault_from_status(struct api_fault *fault, enum status status, const struct status_note *note) {
    const char *text = note && note->text[0] ? note->text : status_text(status);
    if (status == STATUS_BUSY) {
        api_fault_set(fault, 429, "rate_limit_exceeded", NULL, "%s", text);
        fault->retry_after_s = 1;
    } else if (status == STATUS_INVALID || status == STATUS_LIMIT || status == STATUS_FORMAT) {
        api_fault_set(fault, 400, NULL, NULL, "%s", text);
    } else if (status == STATUS_NOMEM) {
        api_fault_set(fault, 503, "out_of_memory", NULL, "%s", text);
        fault->retry_after_s = 1;
    } else {
        api_fault_set(fault, 500, NULL, NULL, "%s", text);
    }
}

/* Names of the classes of errors, by HTTP code.   Source: vLLM's and Anthropic's servers. */
static const char *type_of(int http_code, enum api_shape shape) {
    static const struct {
        int code;
        const char *openai, *anthropic;
    } types[] = {{400, "BadRequestError", "invalid_request_error"},
                 {401, "Unauthorized", "authentication_error"},
                 {403, "PermissionDenied", "permission_error"},
                 {404, "NotFoundError", "not_found_error"},
                 {405, "MethodNotAllowed", "invalid_request_error"},
                 {408, "RequestTimeout", "invalid_request_error"},
                 {413, "RequestTooLarge", "request_too_large"},
                 {417, "BadRequestError", "invalid_request_error"},
                 {422, "UnprocessableEntityError", "invalid_request_error"},
                 {429, "RateLimitError", "rate_limit_error"},
                 {431, "BadRequestError", "invalid_request_error"},
                 {501, "NotImplementedError", "api_error"},
                 {503, "ServiceUnavailableError", "overloaded_error"},
                 {505, "BadRequestError", "invalid_request_error"}};
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
        if (types[i].code == http_code) return shape == API_OPENAI ? types[i].openai : types[i].anthropic;
    return shape == API_OPENAI ? "InternalServerError" : "api_error";
}

/* A client's bytes may stand in the message: what is no UTF-8, a character that was cut too, becomes '?'. */
static void make_valid(const struct api_fault *fault, char *out, size_t max_bytes) {
    size_t n = strlen(fault->message), i = 0;
    snprintf(out, max_bytes, "%s", fault->message);
    while ((i += utf8_valid_prefix(out + i, n - i)) < n) out[i] = '?';
}

enum status api_fault_write(const struct api_fault *fault, enum api_shape shape, struct str *out) {
    char message[sizeof fault->message];
    make_valid(fault, message, sizeof message);
    const char *type = type_of(fault->http_code, shape);
    struct json_write json;
    json_write_init(&json, out);
    json_write_object(&json);
    if (shape == API_ANTHROPIC) json_write_field_text(&json, "type", "error");
    json_write_field_object(&json, "error");
    json_write_field_text(&json, "message", message);
    json_write_field_text(&json, "type", type);
    if (shape == API_OPENAI) {
        if (fault->param[0])
            json_write_field_text(&json, "param", fault->param);
        else
            json_write_field_null(&json, "param");
        if (fault->reason)
            json_write_field_text(&json, "code", fault->reason);
        else
            json_write_field_int(&json, "code", fault->http_code);
    }
    json_write_end_object(&json);
    json_write_end_object(&json);
    return json_write_finish(&json);
}

void api_fault_reply(const struct api_fault *fault, enum api_shape shape, struct http_exchange *exchange) {
    struct str body;
    char seconds[16];
    str_init(&body, MAX_BODY_BYTES);
    enum status status = api_fault_write(fault, shape, &body);
    if (fault->retry_after_s > 0) {
        snprintf(seconds, sizeof seconds, "%d", fault->retry_after_s);
        http_exchange_set_header(exchange, "Retry-After", seconds);
    }
    if (fault->http_code == 401) http_exchange_set_header(exchange, "WWW-Authenticate", "Bearer");
    http_exchange_reply(exchange, fault->http_code, "application/json", status ? "{}" : body.ptr,
                        status ? 2 : body.n_bytes);
    str_deinit(&body);
}
