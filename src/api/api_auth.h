/* api_auth: who may ask.
 *
 * Only digests of keys are kept. A key is compared with all of them in constant time.
 * Thread: io. */
#ifndef KVICK_API_API_AUTH_H
#define KVICK_API_API_AUTH_H

#include "api/api_fault.h"
#include "base/hash.h"

#define API_AUTH_MAX_KEYS 64

struct api_auth {
    uint8_t digests[API_AUTH_MAX_KEYS][HASH_SHA256_BYTES];
    int n_keys; /* 0: everybody may */
};

/* Errors: STATUS_LIMIT past API_AUTH_MAX_KEYS, STATUS_INVALID for an empty key. */
WARN_UNUSED enum status api_auth_add(struct api_auth *auth, const char *key);

/* "Authorization: Bearer KEY" or "x-api-key: KEY", exactly one of them and exactly once. False: fault is set (401).
 * out_key_idx: which key it was; -1 without keys. */
WARN_UNUSED bool api_auth_check(const struct api_auth *auth, const struct http_exchange *exchange, int *out_key_idx,
                                struct api_fault *fault);

/* Which key a request that was let in has; -1 without keys. */
int api_auth_key_of(const struct api_auth *auth, const struct http_exchange *exchange);

#endif
