/* The EVP interface allocates its context; the one-shot functions of the 1.1 interface keep it on the stack and run
 * the same code. This asks libcrypto for that interface. */
#define OPENSSL_API_COMPAT 0x10100000L

#include "base/hash.h"

#include <stdio.h>

#include <openssl/sha.h>

#include "base/status.h"

void hash_sha256(const void *a, size_t n_a, const void *b, size_t n_b, uint8_t out[HASH_SHA256_BYTES]) {
    SHA256_CTX state;
    int is_good = SHA256_Init(&state);
    if (n_a) is_good &= SHA256_Update(&state, a, n_a);
    if (n_b) is_good &= SHA256_Update(&state, b, n_b);
    is_good &= SHA256_Final(out, &state);
    REQUIRE(is_good);
}

void hash_sha256_hex(const uint8_t digest[HASH_SHA256_BYTES], char out[HASH_SHA256_HEX_BYTES]) {
    for (int i = 0; i < HASH_SHA256_BYTES; i++) snprintf(out + 2 * i, 3, "%02x", digest[i]);
}
