#include "tokenizer/vocab.h"

#include "base/mem.h"
#include "unit/tokenizer/small_vocab.h"

static struct small_vocab small;

static void load(struct vocab *vocab) {
    struct gguf *gguf;
    struct status_note note = {0};
    small_write(&small);
    if (gguf_open_bytes(&gguf, small.bytes, small.n_bytes, &note) || vocab_load(vocab, gguf, &note))
        fail_msg("%s", note.text);
    gguf_close(&gguf);
}

static void the_byte_alphabet_is_a_bijection(void **state) {
    (void)state;
    int n_seen = 0;
    bool is_seen[256] = {false};
    for (uint32_t code_point = 0; code_point < 0x10000; code_point++) {
        char text[4], out[4];
        int n = utf8_encode(code_point, text);
        if (n == 0) continue;
        size_t n_out = vocab_decode_alphabet(text, (size_t)n, out);
        if (n_out == SIZE_MAX) continue;
        assert_int_equal(n_out, 1);
        assert_false(is_seen[(unsigned char)out[0]]);
        is_seen[(unsigned char)out[0]] = true;
        n_seen++;
    }
    assert_int_equal(n_seen, 256);
    char out[8];
    assert_int_equal(vocab_decode_alphabet("\xc4\xa0"
                                           "a\xc4\x8a",
                                           5, out),
                     3); /* space, a, newline */
    assert_memory_equal(out, " a\n", 3);
    assert_int_equal(vocab_decode_alphabet("", 0, out), 0);
    static const char *const bad[] = {" ", "\xc4", "\xc4\xc4", "\xa0", "\xff", "\xe6\xa0\xaa", "\xc1\x81", "\xc2\xad"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_true(vocab_decode_alphabet(bad[i], strlen(bad[i]), out) == SIZE_MAX);
}

static void tokens_are_found_by_their_bytes(void **state) {
    (void)state;
    struct vocab vocab;
    small_bpe(&small);
    load(&vocab);
    for (int32_t id = 0; id < vocab.n_tokens; id++) {
        size_t n_bytes;
        const char *bytes = vocab_bytes(&vocab, id, &n_bytes);
        assert_int_equal(vocab_find(&vocab, bytes, n_bytes), vocab.types[id] == VOCAB_NORMAL ? id : -1);
    }
    for (int byte = 0; byte < 256; byte++) assert_int_equal(vocab.byte_ids[byte], byte);
    assert_int_equal(vocab_find(&vocab, " h", 2), 263);
    assert_int_equal(vocab_find(&vocab, "", 0), -1);
    assert_int_equal(vocab_find(&vocab, "hellohello", 10), -1);
    assert_int_equal(vocab_find_special(&vocab, "<|end|>"), SMALL_END);
    vocab_deinit(&vocab);
}

static void sentencepiece_tokens_are_resolved(void **state) {
    (void)state;
    struct vocab vocab;
    size_t n_bytes;
    small_spm(&small);
    load(&vocab);
    assert_int_equal(vocab_find(&vocab, " a", 2), 263);
    assert_int_equal(vocab_find(&vocab, "<s>", 3), -1);
    assert_int_equal(vocab_find(&vocab, "<0x41>", 6), -1);
    assert_int_equal(vocab.byte_ids['A'], 3 + 'A');
    assert_memory_equal(vocab_bytes(&vocab, 3 + 'A', &n_bytes), "A", 1);
    assert_int_equal(n_bytes, 1);
    assert_true(vocab.adds_bos && vocab.adds_space);
    vocab_deinit(&vocab);
}

static void without_types_the_ends_are_control(void **state) {
    (void)state;
    struct vocab vocab;
    small_bpe(&small);
    small.n_types = 0;
    load(&vocab);
    assert_int_equal(vocab.types[SMALL_START], VOCAB_CONTROL);
    assert_int_equal(vocab.types[SMALL_END], VOCAB_CONTROL);
    assert_int_equal(vocab.types[SMALL_USER], VOCAB_NORMAL);
    vocab_deinit(&vocab);
}

/* A token in the list that no byte symbols can build (a raw character) keeps its text and is never found. */
static void raw_characters_are_only_shown(void **state) {
    (void)state;
    struct vocab vocab;
    size_t n_bytes;
    small_bpe(&small);
    int32_t id = small_add(&small, "\xe6\xa0\xaa", 1, 0);
    load(&vocab);
    assert_int_equal(vocab_find(&vocab, "\xe6\xa0\xaa", 3), -1);
    assert_memory_equal(vocab_bytes(&vocab, id, &n_bytes), "\xe6\xa0\xaa", 3);
    vocab_deinit(&vocab);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_byte_alphabet_is_a_bijection),  cmocka_unit_test(tokens_are_found_by_their_bytes),
        cmocka_unit_test(sentencepiece_tokens_are_resolved), cmocka_unit_test(without_types_the_ends_are_control),
        cmocka_unit_test(raw_characters_are_only_shown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
