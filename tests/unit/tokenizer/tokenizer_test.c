#include "tokenizer/tokenizer.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "tokenizer/detokenizer.h"
#include "unit/tokenizer/small_vocab.h"

static struct small_vocab vocab;

static struct tokenizer *open_written(void) {
    struct tokenizer *tokenizer;
    struct status_note note = {0};
    small_write(&vocab);
    if (small_open(&vocab, &tokenizer, &note)) fail_msg("%s", note.text);
    return tokenizer;
}

static struct tokenizer *open_bpe(void) {
    small_bpe(&vocab);
    return open_written();
}

static struct tokenizer *open_spm(void) {
    small_spm(&vocab);
    return open_written();
}

/* ids: ends at -1. */
static void check(const struct tokenizer *tokenizer, const char *text, size_t n_bytes, unsigned flags,
                  const int32_t *want) {
    struct id_list ids;
    struct status_note note = {0};
    size_t n_want = 0;
    while (want[n_want] >= 0) n_want++;
    id_list_init(&ids, 1000);
    if (tokenizer_encode(tokenizer, text, n_bytes, flags, &ids, &note)) fail_msg("%s", note.text);
    assert_int_equal(ids.n_ids, n_want);
    if (n_want) assert_memory_equal(ids.ids, want, n_want * sizeof *want);
    id_list_deinit(&ids);
}

#define CHECK(tokenizer, text, flags, ...)                                                                             \
    check(tokenizer, text, sizeof text - 1, flags, (const int32_t[]){__VA_ARGS__, -1})

static void bpe_gives_known_ids(void **state) {
    (void)state;
    struct tokenizer *tokenizer = open_bpe();
    CHECK(tokenizer, "hello", 0, SMALL_HELLO);
    CHECK(tokenizer, "hell", 0, 261);
    CHECK(tokenizer, "hello hello", 0, SMALL_HELLO, 32, SMALL_HELLO); /* "he" outranks " h" */
    CHECK(tokenizer, " hx", 0, 263, 'x');
    CHECK(tokenizer, "lll", 0, 260, 'l');
    CHECK(tokenizer, "\xff\0z", 0, 255, 0, 'z');
    CHECK(tokenizer, "", 0, -1);
    CHECK(tokenizer, "", TOKENIZER_ADD_BOS, SMALL_START);
    CHECK(tokenizer, "x<|end|>", TOKENIZER_PARSE_SPECIAL | TOKENIZER_ADD_BOS, SMALL_START, 'x', SMALL_END);
    CHECK(tokenizer, "<|end|>", 0, '<', '|', 'e', 'n', 'd', '|', '>');
    CHECK(tokenizer, "a[user]b", 0, 'a', SMALL_USER, 'b'); /* user-defined: always */
    CHECK(tokenizer, "<|en<|end|>", TOKENIZER_PARSE_SPECIAL, '<', '|', 'e', 'n', SMALL_END);
    tokenizer_close(&tokenizer);
}

static void spm_gives_known_ids(void **state) {
    (void)state;
    enum { SPACE = 259, A, B, AB, SPACE_A, ABA, TWO_SPACES, BA };
    struct tokenizer *tokenizer = open_spm();
    CHECK(tokenizer, "a", 0, SPACE_A);
    CHECK(tokenizer, "ab", 0, SPACE, AB); /* score of ab above that of space-a */
    CHECK(tokenizer, " b", 0, TWO_SPACES, B);
    CHECK(tokenizer, "b b", 0, SPACE, B, SPACE, B);
    CHECK(tokenizer,
          "b\xe2\x96\x81"
          "b",
          0, SPACE, B, SPACE, B); /* the written space is the space */
    CHECK(tokenizer, "\xc3\xa9\xff", 0, SPACE, 3 + 0xc3, 3 + 0xa9, 3 + 0xff);
    CHECK(tokenizer, "<s>", 0, SPACE, 3 + '<', 3 + 's', 3 + '>');
    CHECK(tokenizer, "<0x41>", 0, SPACE, 3 + '<', 3 + '0', 3 + 'x', 3 + '4', 3 + '1', 3 + '>');
    CHECK(tokenizer, "<s>b</s>", TOKENIZER_PARSE_SPECIAL, 1, SPACE, B, 2);
    CHECK(tokenizer, "b", TOKENIZER_ADD_BOS, 1, SPACE, B);
    CHECK(tokenizer, "", 0, -1);
    tokenizer_close(&tokenizer);
}

static void equal_scores_go_left_to_right(void **state) {
    (void)state;
    small_spm(&vocab);
    int32_t xy = small_add(&vocab, "xy", 1, 0.0f), yz = small_add(&vocab, "yz", 1, -0.0f);
    int32_t x = small_add(&vocab, "x", 1, -50), z = small_add(&vocab, "z", 1, -50);
    vocab.n_scores = vocab.n_tokens;
    for (int round = 0; round < 2; round++) {
        vocab.scores[xy] = round ? 0.0f : -0.0f; /* the sign of zero decides nothing */
        vocab.scores[yz] = round ? -0.0f : 0.0f;
        struct tokenizer *tokenizer = open_written();
        CHECK(tokenizer, "xyz", 0, 259, xy, z);
        tokenizer_close(&tokenizer);
    }
    vocab.scores[yz] = 1e-30f;
    struct tokenizer *tokenizer = open_written();
    CHECK(tokenizer, "xyz", 0, 259, x, yz);
    tokenizer_close(&tokenizer);
}

static void facts_are_told(void **state) {
    (void)state;
    struct tokenizer *tokenizer = open_bpe();
    size_t n_bytes;
    assert_int_equal(tokenizer_n_vocab(tokenizer), vocab.n_tokens);
    assert_int_equal(tokenizer_bos(tokenizer), SMALL_START);
    assert_int_equal(tokenizer_eos(tokenizer), SMALL_END);
    assert_int_equal(tokenizer_eot(tokenizer), SMALL_END); /* by its name */
    assert_false(tokenizer_adds_bos(tokenizer));
    assert_true(tokenizer_is_end_of_generation(tokenizer, SMALL_END));
    assert_false(tokenizer_is_end_of_generation(tokenizer, SMALL_START));
    assert_false(tokenizer_is_end_of_generation(tokenizer, -1));
    assert_true(tokenizer_is_special(tokenizer, SMALL_START));
    assert_false(tokenizer_is_special(tokenizer, SMALL_USER));
    assert_memory_equal(tokenizer_text_of(tokenizer, SMALL_HELLO, &n_bytes), "hello", 5);
    assert_int_equal(n_bytes, 5);
    assert_null(tokenizer_text_of(tokenizer, vocab.n_tokens, &n_bytes));
    assert_null(tokenizer_text_of(tokenizer, -1, &n_bytes));
    assert_int_equal(tokenizer_find_special(tokenizer, "<|end|>"), SMALL_END);
    assert_int_equal(tokenizer_find_special(tokenizer, "hello"), -1);
    tokenizer_close(&tokenizer);
    small_bpe(&vocab);
    vocab.pre = "llama-bpe";
    tokenizer = open_written();
    assert_true(tokenizer_adds_bos(tokenizer));
    tokenizer_close(&tokenizer);
    tokenizer = open_spm();
    assert_true(tokenizer_adds_bos(tokenizer));
    tokenizer_close(&tokenizer);
    tokenizer_close(&tokenizer); /* NULL is fine */
}

/* ---- bad vocabularies ---- */

static void expect_refusal(const char *word_1, const char *word_2) {
    struct tokenizer *tokenizer;
    struct status_note note = {0};
    long before = mem_n_live();
    small_write(&vocab);
    enum status status = small_open(&vocab, &tokenizer, &note);
    assert_true(status == STATUS_FORMAT || status == STATUS_INVALID);
    assert_null(tokenizer);
    if (!strstr(note.text, word_1) || !strstr(note.text, word_2))
        fail_msg("'%s' does not name '%s' and '%s'", note.text, word_1, word_2);
    assert_int_equal(mem_n_live(), before);
}

static void bad_vocabularies_are_refused(void **state) {
    (void)state;
    small_bpe(&vocab);
    vocab.model = "bert";
    expect_refusal("tokenizer.ggml.model", "bert");
    small_bpe(&vocab);
    vocab.model = NULL;
    expect_refusal("tokenizer.ggml.model", "");
    small_bpe(&vocab);
    vocab.pre = "my-own";
    expect_refusal("tokenizer.ggml.pre", "my-own");
    small_bpe(&vocab);
    vocab.pre = NULL;
    expect_refusal("tokenizer.ggml.pre", "");
    small_bpe(&vocab);
    vocab.n_merges = 0;
    expect_refusal("tokenizer.ggml.merges", "");
    small_bpe(&vocab);
    snprintf(vocab.merges[1], sizeof vocab.merges[1], "ll");
    expect_refusal("tokenizer.ggml.merges", "ll");
    small_bpe(&vocab);
    snprintf(vocab.merges[1], sizeof vocab.merges[1], "x y");
    expect_refusal("tokenizer.ggml.merges", "x y");
    small_bpe(&vocab);
    vocab.n_types--;
    expect_refusal("tokenizer.ggml.token_type", "263");
    small_bpe(&vocab);
    vocab.types[7] = 9;
    expect_refusal("tokenizer.ggml.token_type", "9");
    small_bpe(&vocab);
    vocab.eos = 264;
    expect_refusal("tokenizer.ggml.eos_token_id", "264");
    small_bpe(&vocab);
    vocab.n_tokens = vocab.n_types = 0;
    expect_refusal("tokenizer.ggml.tokens", "0");
    small_spm(&vocab);
    vocab.n_scores = 0;
    expect_refusal("tokenizer.ggml.scores", "");
    small_spm(&vocab);
    vocab.scores[9] = 0.0f / 0.0f;
    expect_refusal("tokenizer.ggml.scores", "9");
}

static void duplicates_keep_the_first_id(void **state) {
    (void)state;
    small_bpe(&vocab);
    small_add(&vocab, "hello", 1, 0);
    small_add(&vocab, "<|end|>", 3, 0);
    struct tokenizer *tokenizer = open_written();
    CHECK(tokenizer, "hello<|end|>", TOKENIZER_PARSE_SPECIAL, SMALL_HELLO, SMALL_END);
    tokenizer_close(&tokenizer);
}

/* ---- spans ---- */

static void check_spans(const struct tokenizer *tokenizer, const char *text, const struct tokenizer_span *spans,
                        size_t n_spans, const int32_t *want, size_t n_want) {
    struct id_list ids;
    id_list_init(&ids, 1000);
    assert_int_equal(tokenizer_encode_spans(tokenizer, text, strlen(text), spans, n_spans, 0, &ids, NULL), STATUS_OK);
    assert_int_equal(ids.n_ids, n_want);
    assert_memory_equal(ids.ids, want, n_want * sizeof *want);
    id_list_deinit(&ids);
}

static void spans_mask_special_text(void **state) {
    (void)state;
    struct tokenizer *tokenizer = open_bpe();
    const char *text = "<|end|><|end|>";
    const struct tokenizer_span first[] = {{0, 7, true}}, parts[] = {{0, 3, true}, {3, 7, true}, {7, 14, false}};
    const struct tokenizer_span straddling[] = {{0, 5, true}, {5, 14, false}}, late[] = {{0, 7, false}, {7, 14, true}};
    const struct tokenizer_span gapped[] = {{0, 3, true}, {4, 8, true}, {9, 14, true}};
    const int32_t one[] = {SMALL_END, '<', '|', 'e', 'n', 'd', '|', '>'};
    const int32_t other[] = {'<', '|', 'e', 'n', 'd', '|', '>', SMALL_END};
    const int32_t none[] = {'<', '|', 'e', 'n', 'd', '|', '>', '<', '|', 'e', 'n', 'd', '|', '>'};
    check_spans(tokenizer, text, first, 1, one, 8); /* bytes in no span allow nothing */
    check_spans(tokenizer, text, parts, 3, one, 8); /* touching spans are one */
    check_spans(tokenizer, text, late, 2, other, 8);
    check_spans(tokenizer, text, straddling, 2, none, 14); /* half template, half user: no token */
    check_spans(tokenizer, text, gapped, 3, none, 14);     /* a byte of nobody's between them: no token */
    check_spans(tokenizer, text, NULL, 0, none, 14);
    const struct tokenizer_span bad[][2] = {
        {{0, 15, true}, {15, 15, true}}, {{5, 3, true}, {6, 7, true}}, {{0, 7, true}, {6, 9, true}}};
    for (size_t i = 0; i < 3; i++) {
        struct id_list ids;
        struct status_note note = {0};
        id_list_init(&ids, 10);
        assert_int_equal(tokenizer_encode_spans(tokenizer, text, 14, bad[i], 2, 0, &ids, &note), STATUS_INVALID);
        assert_non_null(strstr(note.text, "span"));
    }
    tokenizer_close(&tokenizer);
}

static void append(char text[1000], const char *more) {
    size_t n = strlen(text);
    snprintf(text + n, 1000 - n, "%s", more);
}

/* Where user text holds no special text, spans change nothing. */
static void spans_change_nothing_else(void **state) {
    (void)state;
    static const char *const user_bits[] = {"hello", " ", "<|", "end", "|>", "\n", "\xe6\xa0\xaa", "[user]", "x"};
    struct tokenizer *tokenizers[] = {open_bpe(), open_spm()};
    srand(11);
    for (int round = 0; round < 2000; round++) {
        char text[1000] = "";
        struct tokenizer_span spans[16];
        size_t n_spans = 0;
        for (int turn = rand() % 5; turn >= 0; turn--) {
            const char *mark = turn % 2 ? "<|start|>" : "</s>";
            spans[n_spans++] = (struct tokenizer_span){strlen(text), strlen(text) + strlen(mark), true};
            append(text, mark);
            spans[n_spans].from = strlen(text);
            for (int left = rand() % 6; left > 0; left--) {
                append(text, user_bits[(size_t)rand() % (sizeof user_bits / sizeof user_bits[0])]);
                if (strstr(text + spans[n_spans].from, "<|end|>")) text[strlen(text) - 1] = '?';
            }
            spans[n_spans].to = strlen(text);
            spans[n_spans++].parse_special = false;
        }
        struct id_list by_spans, whole;
        struct tokenizer *tokenizer = tokenizers[round % 2];
        id_list_init(&by_spans, 2000);
        id_list_init(&whole, 2000);
        size_t n_bytes = strlen(text);
        assert_int_equal(tokenizer_encode_spans(tokenizer, text, n_bytes, spans, n_spans, 0, &by_spans, NULL), 0);
        assert_int_equal(tokenizer_encode(tokenizer, text, n_bytes, TOKENIZER_PARSE_SPECIAL, &whole, NULL), 0);
        assert_int_equal(by_spans.n_ids, whole.n_ids);
        assert_memory_equal(by_spans.ids, whole.ids, whole.n_ids * sizeof *whole.ids);
        id_list_deinit(&by_spans);
        id_list_deinit(&whole);
    }
    tokenizer_close(&tokenizers[0]);
    tokenizer_close(&tokenizers[1]);
}

/* ---- any bytes, limits, memory, threads ---- */

static void any_bytes_come_back(void **state) {
    (void)state;
    struct tokenizer *tokenizers[] = {open_bpe(), open_spm()};
    srand(5);
    for (int round = 0; round < 3000; round++) {
        char text[100];
        size_t n_bytes = (size_t)rand() % sizeof text, n_back = 0, n;
        for (size_t i = 0; i < n_bytes; i++) text[i] = (char)(round % 3 ? rand() : "hel o ab"[rand() % 8]);
        struct id_list ids;
        id_list_init(&ids, 1000);
        const struct tokenizer *tokenizer = tokenizers[round % 2];
        assert_int_equal(tokenizer_encode(tokenizer, text, n_bytes, 0, &ids, NULL), STATUS_OK);
        char back[200];
        for (size_t i = 0; i < ids.n_ids; i++) {
            const char *bytes = tokenizer_text_of(tokenizer, ids.ids[i], &n);
            memcpy(back + n_back, bytes, n);
            n_back += n;
        }
        size_t n_dummy = round % 2 && n_bytes; /* SentencePiece's space in front */
        assert_int_equal(n_back, n_bytes + n_dummy);
        assert_memory_equal(back + n_dummy, text, n_bytes);
        id_list_deinit(&ids);
    }
    tokenizer_close(&tokenizers[0]);
    tokenizer_close(&tokenizers[1]);
}

static void limits_leave_the_list_alone(void **state) {
    (void)state;
    struct tokenizer *tokenizer = open_bpe();
    struct id_list ids;
    struct status_note note = {0};
    id_list_init(&ids, 4);
    assert_int_equal(id_list_push(&ids, 77), STATUS_OK);
    assert_int_equal(tokenizer_encode(tokenizer, "xyzw", 4, 0, &ids, &note), STATUS_LIMIT);
    assert_non_null(strstr(note.text, "4 tokens"));
    assert_int_equal(ids.n_ids, 1);
    assert_int_equal(tokenizer_encode(tokenizer, "xyz", 3, 0, &ids, &note), STATUS_OK);
    assert_int_equal(ids.n_ids, 4);
    id_list_deinit(&ids);
    tokenizer_close(&tokenizer);
    small_bpe(&vocab);
    vocab.bos = -1;
    tokenizer = open_written();
    assert_int_equal(tokenizer_encode(tokenizer, "x", 1, TOKENIZER_ADD_BOS, &ids, &note), STATUS_INVALID);
    assert_non_null(strstr(note.text, "bos_token_id"));
    tokenizer_close(&tokenizer);
}

static void a_list_gives_its_ids_away(void **state) {
    (void)state;
    struct id_list ids;
    long before = mem_n_live();
    id_list_init(&ids, 3);
    assert_int_equal(id_list_push_all(&ids, (const int32_t[]){4, 5, 6, 7}, 4), STATUS_LIMIT);
    assert_int_equal(id_list_push_all(&ids, (const int32_t[]){4, 5}, 2), STATUS_OK);
    int32_t *taken = id_list_take(&ids);
    assert_int_equal(taken[1], 5);
    assert_int_equal(ids.n_ids, 0);
    assert_int_equal(id_list_push(&ids, 9), STATUS_OK);
    assert_int_equal(taken[0], 4);
    mem_free(taken);
    id_list_clear(&ids);
    assert_int_equal(id_list_push_all(&ids, (const int32_t[]){1, 2, 3}, 3), STATUS_OK);
    assert_int_equal(id_list_push(&ids, 9), STATUS_LIMIT);
    id_list_deinit(&ids);
    assert_int_equal(mem_n_live(), before);
}

static void every_memory_failure_is_clean(void **state) {
    (void)state;
    static const char text[] = "hello \xff hellohellohellohellohellohellohello<|end|>abababababababababababababababa";
    for (int kind = 0; kind < 2; kind++) {
        if (kind)
            small_spm(&vocab);
        else
            small_bpe(&vocab);
        small_write(&vocab);
        long before = mem_n_live();
        for (int nth = 1;; nth++) {
            struct tokenizer *tokenizer;
            struct id_list ids;
            id_list_init(&ids, 1000);
            mem_fail_from(nth);
            enum status status = small_open(&vocab, &tokenizer, NULL);
            if (!status) status = tokenizer_encode(tokenizer, text, sizeof text - 1, 2, &ids, NULL);
            mem_fail_from(0);
            if (status) assert_int_equal(ids.n_ids, 0);
            id_list_deinit(&ids);
            tokenizer_close(&tokenizer);
            assert_int_equal(mem_n_live(), before);
            if (!status) break;
            assert_int_equal(status, STATUS_NOMEM);
            assert_true(nth < 1000);
        }
    }
}

struct thread_job {
    const struct tokenizer *tokenizer;
    size_t n_ids;
    uint64_t sum;
};

static void *encode_often(void *context) {
    struct thread_job *job = context;
    for (int round = 0; round < 200; round++) {
        struct id_list ids;
        id_list_init(&ids, 1000);
        if (tokenizer_encode(job->tokenizer, "hello hello\n\xff <|end|> lll", 24, 0, &ids, NULL)) return NULL;
        job->n_ids += ids.n_ids;
        for (size_t i = 0; i < ids.n_ids; i++) job->sum = job->sum * 31 + (uint64_t)ids.ids[i];
        id_list_deinit(&ids);
    }
    return NULL;
}

static void threads_share_one_tokenizer(void **state) {
    (void)state;
    struct tokenizer *tokenizer = open_bpe();
    struct thread_job jobs[4];
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) {
        jobs[i] = (struct thread_job){tokenizer, 0, 0};
        assert_int_equal(pthread_create(&threads[i], NULL, encode_often, &jobs[i]), 0);
    }
    for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
    for (int i = 1; i < 4; i++) {
        assert_int_equal(jobs[i].n_ids, jobs[0].n_ids);
        assert_true(jobs[i].sum == jobs[0].sum);
    }
    assert_true(jobs[0].n_ids > 0);
    tokenizer_close(&tokenizer);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bpe_gives_known_ids),           cmocka_unit_test(spm_gives_known_ids),
        cmocka_unit_test(equal_scores_go_left_to_right), cmocka_unit_test(facts_are_told),
        cmocka_unit_test(bad_vocabularies_are_refused),  cmocka_unit_test(duplicates_keep_the_first_id),
        cmocka_unit_test(spans_mask_special_text),       cmocka_unit_test(spans_change_nothing_else),
        cmocka_unit_test(any_bytes_come_back),           cmocka_unit_test(limits_leave_the_list_alone),
        cmocka_unit_test(a_list_gives_its_ids_away),     cmocka_unit_test(every_memory_failure_is_clean),
        cmocka_unit_test(threads_share_one_tokenizer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
