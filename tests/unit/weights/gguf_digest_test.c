/* gguf_digest: equal files are equal; a changed key or weight is seen. */
#include "support/test.h"

#include <string.h>

#include "support/gguf_build.h"
#include "weights/gguf_digest.h"

static void digest_of(const struct gguf_build *build, uint8_t out[HASH_SHA256_BYTES]) {
    struct gguf *gguf;
    struct status_note note = {0};
    if (gguf_open_bytes(&gguf, build->bytes, build->n_bytes, &note)) fail_msg("%s", note.text);
    gguf_digest(gguf, out);
    gguf_close(&gguf);
}

static void what_differs_is_seen(void **state) {
    static struct gguf_build build;
    uint8_t first[HASH_SHA256_BYTES], again[HASH_SHA256_BYTES];
    (void)state;
    gguf_build_good(&build, 3);
    digest_of(&build, first);
    digest_of(&build, again);
    assert_memory_equal(first, again, sizeof first);
    size_t data = gguf_build_off(&build, "data");
    const size_t places[] = {data, data + 20, data + 96, build.n_bytes - 1, /* the values of a key: */
                             gguf_build_off(&build, "tokenizer.chat_template:value") + 8};
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        build.bytes[places[i]] ^= 1;
        digest_of(&build, again);
        assert_memory_not_equal(first, again, sizeof first);
        build.bytes[places[i]] ^= 1;
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(what_differs_is_seen)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
