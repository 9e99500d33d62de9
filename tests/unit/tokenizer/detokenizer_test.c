#include "tokenizer/detokenizer.h"

#include <stdlib.h>

#include "base/mem.h"
#include "unit/tokenizer/small_vocab.h"

static struct small_vocab vocab;

static struct tokenizer *open_small(void (*fill)(struct small_vocab *)) {
    struct tokenizer *tokenizer;
    struct status_note note = {0};
    fill(&vocab);
    small_write(&vocab);
    if (small_open(&vocab, &tokenizer, &note)) fail_msg("%s", note.text);
    return tokenizer;
}

/* Pushes ids[0..n_ids) and compares the text after each push with whole characters of want; then the end. */
static void check(const struct tokenizer *tokenizer, unsigned flags, const int32_t *ids, size_t n_ids,
                  const char *want) {
    struct detokenizer detokenizer;
    struct str text;
    str_init(&text, 1000);
    detokenizer_init(&detokenizer, tokenizer, flags);
    for (size_t i = 0; i < n_ids; i++) {
        assert_int_equal(detokenizer_push(&detokenizer, ids[i], &text), STATUS_OK);
        assert_int_equal(utf8_valid_prefix(text.ptr, text.n_bytes), text.n_bytes);
        assert_memory_equal(text.ptr, want, text.n_bytes);
    }
    assert_int_equal(detokenizer_finish(&detokenizer, &text), STATUS_OK);
    assert_string_equal(text.ptr, want);
    str_deinit(&text);
}

#define CHECK(tokenizer, flags, want, ...)                                                                             \
    check(tokenizer, flags, (const int32_t[]){__VA_ARGS__}, sizeof((const int32_t[]){__VA_ARGS__}) / 4, want)

static void characters_are_never_cut(void **state) {
    (void)state;
    struct tokenizer *tokenizer = open_small(small_bpe);
    CHECK(tokenizer, 0, "\xf0\x9f\xa6\x99", 0xf0, 0x9f, 0xa6, 0x99);
    CHECK(tokenizer, 0, "a\xc3\xa9z", 'a', 0xc3, 0xa9, 'z');
    CHECK(tokenizer, 0, "hello\xe6\xa0\xaahello", SMALL_HELLO, 0xe6, 0xa0, 0xaa, SMALL_HELLO);
    tokenizer_close(&tokenizer);
}

#define FFFD "\xef\xbf\xbd"

static void bad_bytes_become_replacement_marks(void **state) {
    (void)state;
    struct tokenizer *tokenizer = open_small(small_bpe);
    CHECK(tokenizer, 0, FFFD, 0xff);
    CHECK(tokenizer, 0, FFFD "a", 0xf0, 0x9f, 0xa6, 'a');  /* one mark for the maximal start */
    CHECK(tokenizer, 0, FFFD FFFD FFFD, 0xed, 0xa0, 0x80); /* a surrogate has no good start */
    CHECK(tokenizer, 0, FFFD "\xc3\xa9", 0xe6, 0xc3, 0xa9);
    CHECK(tokenizer, 0, FFFD "hello", 0xe6, 0xa0, SMALL_HELLO);
    CHECK(tokenizer, 0, "a" FFFD, 'a', 0xe6, 0xa0); /* cut by the end */
    CHECK(tokenizer, 0, FFFD FFFD, 0x80, 0xc0);
    tokenizer_close(&tokenizer);
}

static void special_tokens_are_silent(void **state) {
    (void)state;
    struct tokenizer *tokenizer = open_small(small_bpe);
    CHECK(tokenizer, 0, "a[user]b", SMALL_START, 'a', SMALL_USER, 'b', SMALL_END);
    CHECK(tokenizer, DETOKENIZER_SHOW_SPECIAL, "<|start|>a<|end|>", SMALL_START, 'a', SMALL_END);
    CHECK(tokenizer, 0, "\xc3\xa9", 0xc3, SMALL_END, 0xa9);
    struct detokenizer detokenizer;
    struct str text;
    str_init(&text, 10);
    detokenizer_init(&detokenizer, tokenizer, 0);
    assert_int_equal(detokenizer_push(&detokenizer, -1, &text), STATUS_INVALID);
    assert_int_equal(detokenizer_push(&detokenizer, tokenizer_n_vocab(tokenizer), &text), STATUS_INVALID);
    tokenizer_close(&tokenizer);
}

static void the_dummy_space_goes(void **state) {
    (void)state;
    enum { SPACE = 259, A, B, AB, SPACE_A };
    struct tokenizer *tokenizer = open_small(small_spm);
    CHECK(tokenizer, DETOKENIZER_AT_START, "a b", SPACE_A, SPACE, B);
    CHECK(tokenizer, DETOKENIZER_AT_START, "a", 1, SPACE_A); /* BOS is no text */
    CHECK(tokenizer, DETOKENIZER_AT_START, "  a", SPACE, SPACE, SPACE_A);
    CHECK(tokenizer, 0, " a", SPACE_A); /* the middle of a text */
    CHECK(tokenizer, DETOKENIZER_AT_START, "\xf0\x9f\xa6\x99", SPACE, 3 + 0xf0, 3 + 0x9f, 3 + 0xa6, 3 + 0x99);
    CHECK(tokenizer, DETOKENIZER_AT_START, "b a", B, SPACE_A);
    tokenizer_close(&tokenizer);
}

/* What comes out does not depend on where the tokens are cut: bytes alone or whole tokens. */
static void streams_equal_one_shot(void **state) {
    (void)state;
    struct tokenizer *tokenizer = open_small(small_bpe);
    srand(17);
    for (int round = 0; round < 5000; round++) {
        char bytes[40];
        size_t n = (size_t)rand() % sizeof bytes;
        for (size_t i = 0; i < n; i++) bytes[i] = "hello \xe6\xa0\xaa\xf0\x9f\xa6\x99\xff\xc3"[rand() % 15];
        struct id_list ids;
        struct str by_token, by_byte;
        struct detokenizer one, other;
        id_list_init(&ids, 100);
        str_init(&by_token, 1000);
        str_init(&by_byte, 1000);
        detokenizer_init(&one, tokenizer, 0);
        detokenizer_init(&other, tokenizer, 0);
        assert_int_equal(tokenizer_encode(tokenizer, bytes, n, 0, &ids, NULL), STATUS_OK);
        for (size_t i = 0; i < ids.n_ids; i++) assert_int_equal(detokenizer_push(&one, ids.ids[i], &by_token), 0);
        for (size_t i = 0; i < n; i++) assert_int_equal(detokenizer_push(&other, (unsigned char)bytes[i], &by_byte), 0);
        assert_int_equal(detokenizer_finish(&one, &by_token), STATUS_OK);
        assert_int_equal(detokenizer_finish(&other, &by_byte), STATUS_OK);
        assert_string_equal(by_token.ptr, by_byte.ptr);
        assert_int_equal(utf8_valid_prefix(by_token.ptr, by_token.n_bytes), by_token.n_bytes);
        str_deinit(&by_token);
        str_deinit(&by_byte);
        id_list_deinit(&ids);
    }
    tokenizer_close(&tokenizer);
}

static void a_full_buffer_is_told(void **state) {
    (void)state;
    struct tokenizer *tokenizer = open_small(small_bpe);
    struct detokenizer detokenizer;
    struct str text;
    str_init(&text, 3);
    detokenizer_init(&detokenizer, tokenizer, 0);
    assert_int_equal(detokenizer_push(&detokenizer, SMALL_HELLO, &text), STATUS_LIMIT);
    assert_int_equal(text.n_bytes, 0);
    mem_fail_from(1);
    assert_int_equal(detokenizer_push(&detokenizer, 'a', &text), STATUS_NOMEM);
    mem_fail_from(0);
    str_deinit(&text);
    tokenizer_close(&tokenizer);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(characters_are_never_cut),  cmocka_unit_test(bad_bytes_become_replacement_marks),
        cmocka_unit_test(special_tokens_are_silent), cmocka_unit_test(the_dummy_space_goes),
        cmocka_unit_test(streams_equal_one_shot),    cmocka_unit_test(a_full_buffer_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
