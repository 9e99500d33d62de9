/* hash: SHA-256, a thin front over libcrypto, so that folders without outside headers can hash.
 *
 * Thread: any.   Memory: none; the state lives on the stack, so it may be called between plan and commit.
 * Source: FIPS 180-4. */
#ifndef KVICK_BASE_HASH_H
#define KVICK_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

#define HASH_SHA256_BYTES 32
#define HASH_SHA256_HEX_BYTES (2 * HASH_SHA256_BYTES + 1)

/* Digest of the n_a bytes at a followed by the n_b bytes at b. Either may be NULL when its count is 0.
 * The border between a and b is not hashed: a caller that varies n_a must put lengths in the bytes.
 * out may overlap a and b. */
void hash_sha256(const void *a, size_t n_a, const void *b, size_t n_b, uint8_t out[HASH_SHA256_BYTES]);

/* In lower case, terminated. */
void hash_sha256_hex(const uint8_t digest[HASH_SHA256_BYTES], char out[HASH_SHA256_HEX_BYTES]);

#endif
