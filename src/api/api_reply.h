/* api_reply: a small JSON object as the reply of a route that answers at once.
 *
 * Thread: io. */
#ifndef KVICK_API_API_REPLY_H
#define KVICK_API_API_REPLY_H

#include "api/api_fault.h"
#include "base/json_write.h"

#define API_REPLY_MAX_BYTES ((size_t)64 << 20)

/* body: made here, with an object open for its fields. */
void api_reply_begin(struct json_write *json, struct str *body);

/* The object is closed and replied; ends the exchange and frees body. shape: of a fault, if there was no memory. */
void api_reply_end(struct http_exchange *exchange, enum api_shape shape, struct json_write *json, struct str *body);

/* The same of what is closed already. */
void api_reply_json(struct http_exchange *exchange, enum api_shape shape, const struct json_write *json,
                    struct str *body);

#endif
