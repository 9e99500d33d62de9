#include "api/api_auth.h"

#include <string.h>
#include <strings.h>

enum status api_auth_add(struct api_auth *auth, const char *key) {
    if (!key[0]) return STATUS_INVALID;
    if (auth->n_keys == API_AUTH_MAX_KEYS) return STATUS_LIMIT;
    hash_sha256(key, strlen(key), NULL, 0, auth->digests[auth->n_keys++]);
    return STATUS_OK;
}

/* Every byte of every digest is looked at, whatever matches. */
static int find(const struct api_auth *auth, const char *key) {
    uint8_t digest[HASH_SHA256_BYTES];
    int found = -1;
    hash_sha256(key, strlen(key), NULL, 0, digest);
    for (int i = 0; i < auth->n_keys; i++) {
        unsigned difference = 0;
        for (int b = 0; b < HASH_SHA256_BYTES; b++) difference |= (unsigned)(digest[b] ^ auth->digests[i][b]);
        if (difference == 0) found = i;
    }
    return found;
}

bool api_auth_check(const struct api_auth *auth, const struct http_exchange *exchange, int *out_key_idx,
                    struct api_fault *fault) {
    *out_key_idx = -1;
    if (auth->n_keys == 0) return true;
    const char *bearer = http_exchange_header(exchange, "Authorization");
    const char *key = http_exchange_header(exchange, "x-api-key");
    int n_given = http_exchange_n_headers(exchange, "Authorization") + http_exchange_n_headers(exchange, "x-api-key");
    if (bearer && strncasecmp(bearer, "Bearer ", 7) == 0) key = bearer + 7;
    /* Clients of Anthropic's API may send the same key in both headers. */
    bool is_clear = n_given == 1 || (n_given == 2 && bearer && http_exchange_header(exchange, "x-api-key"));
    if (key && is_clear) *out_key_idx = find(auth, key);
    if (*out_key_idx >= 0) return true;
    return api_fault_set(fault, 401, "invalid_api_key", NULL, "a valid API key is needed (Authorization: Bearer KEY)");
}

int api_auth_key_of(const struct api_auth *auth, const struct http_exchange *exchange) {
    struct api_fault ignored;
    int key_idx;
    bool is_known = api_auth_check(auth, exchange, &key_idx, &ignored);
    return is_known ? key_idx : -1;
}
