/* api_key: what is known of a key: who has it and what it may. The key itself is nowhere. Plain values. */
#ifndef KVICK_API_API_KEY_H
#define KVICK_API_API_KEY_H

#include "base/hash.h"
#include "engine/message.h"

#define API_KEY_MAX_NAME_BYTES 64
#define API_KEY_MAX_DIGESTS 4

/* What a request of the key is run under. */
struct api_key_terms {
    char name[API_KEY_MAX_NAME_BYTES]; /* for logs and messages; "": no key */
    enum request_class class_;         /* BATCH: all its requests are */
    int weight;                        /* share of the machine beside other keys; 0 counts as 1 */
    int max_context, max_output;       /* tokens: prompt plus answer, one answer; 0: as the server allows */
    uint64_t tenant_id;
    bool has_salt;                   /* false: its prefixes may meet those of all others without */
    uint8_t salt[HASH_SHA256_BYTES]; /* prefixes of equal salts may meet */
};

struct api_key {
    struct api_key_terms terms;
    bool is_admin;                                           /* sees what others do: /metrics */
    uint8_t digests[API_KEY_MAX_DIGESTS][HASH_SHA256_BYTES]; /* SHA-256 of each text that is this key */
    int n_digests;
    double tokens_per_minute, prefill_ms_per_minute; /* 0: any */
};

#endif
