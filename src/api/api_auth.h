/* api_auth: who may ask, and how much.
 *
 * Only digests of keys are kept. A key is compared with all of them in constant time. A key's index is its name's for
 * as long as the process lives, whatever is read anew.
 * Thread: io.   Memory: API_AUTH_MAX_KEYS slots from init on. */
#ifndef KVICK_API_API_AUTH_H
#define KVICK_API_API_AUTH_H

#include "api/api_fault.h"
#include "api/api_key.h"
#include "base/json_write.h"

#define API_AUTH_MAX_KEYS 1024

struct api_auth_slot;

struct api_auth {
    struct api_auth_slot *slots; /* [n_slots] */
    int n_slots;
    int n_keys;  /* that may ask now */
    bool is_set; /* some key is needed; else everybody may */
};

/* Errors: STATUS_NOMEM. */
WARN_UNUSED enum status api_auth_init(struct api_auth *auth);
void api_auth_deinit(struct api_auth *auth);

/* One of the operator's own keys: it may all. Errors: STATUS_LIMIT past API_AUTH_MAX_KEYS, STATUS_INVALID for an empty
 * key. */
WARN_UNUSED enum status api_auth_add(struct api_auth *auth, const char *key);

/* In place of those that were set so before, keys of names [n_keys] that all differ; what a name has used up stays so.
 * Errors: STATUS_LIMIT when names past and present are more than API_AUTH_MAX_KEYS; then nothing has changed. */
WARN_UNUSED enum status api_auth_set(struct api_auth *auth, const struct api_key *keys, int n_keys, int64_t now_ns,
                                     struct status_note *note);

/* "Authorization: Bearer KEY" or "x-api-key: KEY", exactly one of them and exactly once. False: fault is set (401).
 * out_key_idx: which key it was; -1 without keys. */
WARN_UNUSED bool api_auth_check(const struct api_auth *auth, const struct http_exchange *exchange, int *out_key_idx,
                                struct api_fault *fault);

/* Which key a request that was let in has; -1 without keys. */
int api_auth_key_of(const struct api_auth *auth, const struct http_exchange *exchange);

/* -1: what everybody may where no key is needed. */
struct api_key_terms api_auth_terms(const struct api_auth *auth, int key_idx);
bool api_auth_is_admin(const struct api_auth *auth, int key_idx);

/* Whether the key has used up what it may use per minute. False: fault is set (429) with when to come again. */
WARN_UNUSED bool api_auth_check_rate(const struct api_auth *auth, int key_idx, int64_t now_ns, struct api_fault *fault);

/* An object for each key that may ask: its limits, and how long it must wait for each budget; for the operator. */
void api_auth_write(const struct api_auth *auth, int64_t now_ns, struct json_write *json);

/* A request of the key used so much. */
void api_auth_use(struct api_auth *auth, int key_idx, int n_tokens, int64_t prefill_ns, int64_t now_ns);

#endif
