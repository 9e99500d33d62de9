/* api_fault: why a request gets no answer, in the shapes that clients parse.
 *
 * Thread: any; replying on the event loop. */
#ifndef KVICK_API_API_FAULT_H
#define KVICK_API_API_FAULT_H

#include "base/str.h"
#include "http/http_exchange.h"

/* Which family of clients asked. */
enum api_shape { API_OPENAI, API_ANTHROPIC };

struct api_fault {
    int http_code;      /* 0: no fault */
    const char *reason; /* "context_length_exceeded", ...; NULL: the HTTP code stands in its place */
    char param[64];     /* the field at fault; "" if none */
    char message[600];  /* for a person; never a key or a salt */
    int retry_after_s;  /* of 429 and 503; 0: not said */
};

/* Fills the fault and returns false, so that readers can end with it. param may be NULL. */
bool api_fault_set(struct api_fault *fault, int http_code, const char *reason, const char *param, const char *fmt, ...)
    PRINTF_LIKE(5, 6);

/* What a failed call of ours means to the client: its request (400), its turn (429), or us (500). */
void api_fault_from_status(struct api_fault *fault, enum status status, const struct status_note *note);

/* Appends the JSON body. Errors: those of str_append. */
WARN_UNUSED enum status api_fault_write(const struct api_fault *fault, enum api_shape shape, struct str *out);

/* The reply with its headers; ends the exchange. */
void api_fault_reply(const struct api_fault *fault, enum api_shape shape, struct http_exchange *exchange);

#endif
