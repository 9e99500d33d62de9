#include "api/api_auth.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "api/api_rate.h"
#include "base/mem.h"

#define MAX_RETRY_S 86400

struct api_auth_slot {
    struct api_key key; /* n_digests 0: it may no more */
    bool is_own;        /* the operator's, of api_auth_add */
    struct api_rate tokens, prefill_ms;
};

/* ---- the table ---- */

enum status api_auth_init(struct api_auth *auth) {
    *auth = (struct api_auth){.slots = mem_alloc_array(API_AUTH_MAX_KEYS, sizeof *auth->slots)};
    return auth->slots ? STATUS_OK : STATUS_NOMEM;
}

void api_auth_deinit(struct api_auth *auth) {
    mem_free(auth->slots);
    *auth = (struct api_auth){0};
}

enum status api_auth_add(struct api_auth *auth, const char *key) {
    static const char scope[] = "kvick api-key";
    if (!key[0]) return STATUS_INVALID;
    if (auth->n_slots == API_AUTH_MAX_KEYS) return STATUS_LIMIT;
    struct api_auth_slot *slot = &auth->slots[auth->n_slots++];
    struct api_key_terms *terms = &slot->key.terms;
    *slot = (struct api_auth_slot){.is_own = true, .key = {.is_admin = true, .n_digests = 1}};
    hash_sha256(key, strlen(key), NULL, 0, slot->key.digests[0]);
    hash_sha256(scope, sizeof scope, slot->key.digests[0], HASH_SHA256_BYTES, terms->salt);
    terms->has_salt = true;
    memcpy(&terms->tenant_id, terms->salt, sizeof terms->tenant_id);
    snprintf(terms->name, sizeof terms->name, "api-key-%d", auth->n_slots);
    auth->n_keys++;
    auth->is_set = true;
    return STATUS_OK;
}

static struct api_auth_slot *find_name(const struct api_auth *auth, const char *name) {
    for (int i = 0; i < auth->n_slots; i++)
        if (!auth->slots[i].is_own && strcmp(auth->slots[i].key.terms.name, name) == 0) return &auth->slots[i];
    return NULL;
}

enum status api_auth_set(struct api_auth *auth, const struct api_key *keys, int n_keys, int64_t now_ns,
                         struct status_note *note) {
    int n_new = 0;
    for (int i = 0; i < n_keys; i++) n_new += !find_name(auth, keys[i].terms.name);
    if (auth->n_slots + n_new > API_AUTH_MAX_KEYS)
        return status_fail(note, STATUS_LIMIT, "more than %d keys, those since the start included", API_AUTH_MAX_KEYS);
    auth->n_keys = 0;
    for (int i = 0; i < auth->n_slots; i++) {
        if (!auth->slots[i].is_own) auth->slots[i].key.n_digests = 0;
        auth->n_keys += auth->slots[i].is_own;
    }
    for (int i = 0; i < n_keys; i++) {
        struct api_auth_slot *slot = find_name(auth, keys[i].terms.name);
        if (slot) {
            api_rate_change(&slot->tokens, keys[i].tokens_per_minute, now_ns);
            api_rate_change(&slot->prefill_ms, keys[i].prefill_ms_per_minute, now_ns);
        } else {
            slot = &auth->slots[auth->n_slots++];
            slot->is_own = false;
            api_rate_init(&slot->tokens, keys[i].tokens_per_minute, now_ns);
            api_rate_init(&slot->prefill_ms, keys[i].prefill_ms_per_minute, now_ns);
        }
        slot->key = keys[i];
    }
    auth->n_keys += n_keys;
    auth->is_set = true;
    return STATUS_OK;
}

/* ---- who it is ---- */

/* Every byte of every digest is looked at, whatever matches. */
static int find(const struct api_auth *auth, const char *key) {
    uint8_t digest[HASH_SHA256_BYTES];
    int found = -1;
    hash_sha256(key, strlen(key), NULL, 0, digest);
    for (int i = 0; i < auth->n_slots; i++) {
        const struct api_key *known = &auth->slots[i].key;
        for (int d = 0; d < known->n_digests; d++) {
            unsigned difference = 0;
            for (int b = 0; b < HASH_SHA256_BYTES; b++) difference |= (unsigned)(digest[b] ^ known->digests[d][b]);
            if (difference == 0) found = i;
        }
    }
    return found;
}

bool api_auth_check(const struct api_auth *auth, const struct http_exchange *exchange, int *out_key_idx,
                    struct api_fault *fault) {
    *out_key_idx = -1;
    if (!auth->is_set) return true;
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

/* ---- what it may ---- */

struct api_key_terms api_auth_terms(const struct api_auth *auth, int key_idx) {
    return key_idx < 0 ? (struct api_key_terms){0} : auth->slots[key_idx].key.terms;
}

bool api_auth_is_admin(const struct api_auth *auth, int key_idx) {
    return key_idx < 0 ? !auth->is_set : auth->slots[key_idx].key.is_admin;
}

bool api_auth_check_rate(const struct api_auth *auth, int key_idx, int64_t now_ns, struct api_fault *fault) {
    if (key_idx < 0) return true;
    const struct api_auth_slot *slot = &auth->slots[key_idx];
    int64_t tokens_ns = api_rate_wait_ns(&slot->tokens, now_ns),
            prefill_ns = api_rate_wait_ns(&slot->prefill_ms, now_ns);
    if (!tokens_ns && !prefill_ns) return true;
    bool is_tokens = tokens_ns >= prefill_ns;
    int64_t wait_ns = is_tokens ? tokens_ns : prefill_ns, wait_s = (wait_ns + 999999999) / 1000000000;
    const struct api_rate *rate = is_tokens ? &slot->tokens : &slot->prefill_ms;
    if (wait_s > MAX_RETRY_S) wait_s = MAX_RETRY_S;
    api_fault_set(fault, 429, "rate_limit_exceeded", NULL, "the key '%s' has used up its %.0f %s per minute",
                  slot->key.terms.name, rate->per_minute, is_tokens ? "tokens" : "ms of prefill");
    fault->retry_after_s = (int)wait_s;
    return false;
}

static void write_rate(struct json_write *json, const char *name, const char *wait_name, const struct api_rate *rate,
                       int64_t now_ns) {
    if (rate->per_minute <= 0) return;
    json_write_field_real(json, name, rate->per_minute);
    json_write_field_int(json, wait_name, api_rate_wait_ns(rate, now_ns) / 1000000);
}

void api_auth_write(const struct api_auth *auth, int64_t now_ns, struct json_write *json) {
    for (int i = 0; i < auth->n_slots; i++) {
        const struct api_auth_slot *slot = &auth->slots[i];
        const struct api_key_terms *terms = &slot->key.terms;
        if (slot->key.n_digests == 0) continue;
        json_write_object(json);
        json_write_field_text(json, "name", terms->name);
        json_write_field_text(json, "class", message_class_name(terms->class_));
        json_write_field_flag(json, "admin", slot->key.is_admin);
        json_write_field_int(json, "weight", terms->weight ? terms->weight : 1);
        if (terms->max_context) json_write_field_int(json, "max_context", terms->max_context);
        if (terms->max_output) json_write_field_int(json, "max_output", terms->max_output);
        write_rate(json, "tokens_per_minute", "tokens_wait_ms", &slot->tokens, now_ns);
        write_rate(json, "prefill_ms_per_minute", "prefill_wait_ms", &slot->prefill_ms, now_ns);
        json_write_end_object(json);
    }
}

void api_auth_use(struct api_auth *auth, int key_idx, int n_tokens, int64_t prefill_ns, int64_t now_ns) {
    if (key_idx < 0) return;
    api_rate_use(&auth->slots[key_idx].tokens, n_tokens, now_ns);
    api_rate_use(&auth->slots[key_idx].prefill_ms, (double)prefill_ns / 1e6, now_ns);
}

int api_auth_key_of(const struct api_auth *auth, const struct http_exchange *exchange) {
    struct api_fault ignored;
    int key_idx;
    bool is_known = api_auth_check(auth, exchange, &key_idx, &ignored);
    return is_known ? key_idx : -1;
}
