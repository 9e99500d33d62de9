#include "base/hash.h"

#include <openssl/crypto.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/test.h"

static int n_allocations;

static void *count_malloc(size_t n_bytes, const char *file, int line) {
    (void)file, (void)line;
    n_allocations++;
    return malloc(n_bytes);
}

static void *count_realloc(void *old, size_t n_bytes, const char *file, int line) {
    (void)file, (void)line;
    n_allocations++;
    return realloc(old, n_bytes);
}

static void count_free(void *p, const char *file, int line) {
    (void)file, (void)line;
    free(p);
}

static void assert_hex(const uint8_t digest[HASH_SHA256_BYTES], const char *hex) {
    char text[2 * HASH_SHA256_BYTES + 1];
    for (int i = 0; i < HASH_SHA256_BYTES; i++) snprintf(text + 2 * i, 3, "%02x", digest[i]);
    assert_string_equal(text, hex);
}

/* Vectors: FIPS 180-2, appendix B. */
static void published_vectors(void **state) {
    (void)state;
    uint8_t digest[HASH_SHA256_BYTES];
    hash_sha256(NULL, 0, NULL, 0, digest);
    assert_hex(digest, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    hash_sha256("abc", 3, NULL, 0, digest);
    assert_hex(digest, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    const char *text = "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq";
    for (size_t cut = 0; cut <= 56; cut++) {
        hash_sha256(text, cut, text + cut, 56 - cut, digest);
        assert_hex(digest, "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
    }
    static char million[1000000];
    memset(million, 'a', sizeof million);
    hash_sha256(million, 1, million, sizeof million - 1, digest);
    assert_hex(digest, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

static void output_may_overlap_input(void **state) {
    (void)state;
    uint8_t bytes[HASH_SHA256_BYTES] = "abc";
    hash_sha256(bytes, 1, bytes + 1, 2, bytes);
    assert_hex(bytes, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

static void nothing_is_allocated(void **state) {
    (void)state;
    uint8_t digest[HASH_SHA256_BYTES];
    int n_before = n_allocations;
    for (int i = 0; i < 100; i++) hash_sha256(&i, sizeof i, digest, sizeof digest, digest);
    assert_int_equal(n_allocations, n_before);
    OPENSSL_free(OPENSSL_malloc(1)); /* the counter counts */
    assert_int_equal(n_allocations, n_before + 1);
}

int main(void) {
    /* Must come before libcrypto allocates anything. */
    if (!CRYPTO_set_mem_functions(count_malloc, count_realloc, count_free)) return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(published_vectors),
        cmocka_unit_test(output_may_overlap_input),
        cmocka_unit_test(nothing_is_allocated),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
