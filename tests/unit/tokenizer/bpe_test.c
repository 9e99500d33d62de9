#include "tokenizer/bpe.h"

#include <stdio.h>
#include <stdlib.h>

#include "tokenizer/spm.h"
#include "unit/tokenizer/small_vocab.h"

static struct small_vocab small;

/* Byte-level vocabulary with many overlapping merges of the letters a to d, made at random. */
static void random_merges(void) {
    char texts[120][48];
    int n_texts = 4;
    small_bpe(&small);
    for (int i = 0; i < 4; i++) snprintf(texts[i], sizeof texts[i], "%c", 'a' + i);
    while (n_texts < 120) {
        const char *left = texts[rand() % n_texts], *right = texts[rand() % n_texts];
        char joined[100];
        snprintf(joined, sizeof joined, "%s%s", left, right);
        int is_new = strlen(joined) < 12;
        for (int i = 0; i < n_texts; i++) is_new = is_new && strcmp(texts[i], joined) != 0;
        if (!is_new) continue;
        small_merge(&small, left, right);
        memcpy(texts[n_texts++], joined, 12);
    }
    small_write(&small);
}

/* The definition, on texts: join the leftmost pair that stands first in the list, until none is in it. */
static size_t encode_naively(const struct vocab *vocab, const char *word, int32_t *out_ids) {
    static char parts[200][48];
    int n = (int)strlen(word);
    for (int i = 0; i < n; i++) snprintf(parts[i], sizeof parts[i], "%c", word[i]);
    for (int rank = 0; rank < small.n_merges;) {
        int at = -1;
        for (int i = 0; i + 1 < n && at < 0; i++) {
            size_t n_left = strlen(parts[i]);
            const char *line = small.merges[rank];
            if (strncmp(line, parts[i], n_left) == 0 && line[n_left] == ' ' &&
                strcmp(line + n_left + 1, parts[i + 1]) == 0)
                at = i;
        }
        if (at < 0) {
            rank++;
            continue;
        }
        memcpy(parts[at] + strlen(parts[at]), parts[at + 1], strlen(parts[at + 1]) + 1);
        for (int i = at + 1; i + 1 < n; i++) memcpy(parts[i], parts[i + 1], sizeof parts[i]);
        n--;
        rank = 0;
    }
    for (int i = 0; i < n; i++) out_ids[i] = vocab_find(vocab, parts[i], strlen(parts[i]));
    return (size_t)n;
}

static void equals_the_definition(void **state) {
    (void)state;
    srand(23);
    for (int round = 0; round < 20; round++) {
        struct gguf *gguf;
        struct vocab vocab;
        struct bpe bpe;
        struct merge merge;
        random_merges();
        assert_int_equal(gguf_open_bytes(&gguf, small.bytes, small.n_bytes, NULL), STATUS_OK);
        assert_int_equal(vocab_load(&vocab, gguf, NULL), STATUS_OK);
        assert_int_equal(bpe_load(&bpe, &vocab, gguf, false, NULL), STATUS_OK);
        gguf_close(&gguf);
        merge_init(&merge);
        for (int i = 0; i < 60; i++) {
            char word[100];
            int32_t want[100];
            size_t n = 1 + (size_t)rand() % 60; /* shorter and longer than where the heap begins */
            for (size_t k = 0; k < n; k++) word[k] = (char)('a' + rand() % (1 + i % 4));
            word[n] = 0;
            size_t n_want = encode_naively(&vocab, word, want);
            struct id_list ids;
            id_list_init(&ids, 100);
            assert_int_equal(bpe_encode_word(&bpe, &merge, word, n, &ids), STATUS_OK);
            assert_int_equal(ids.n_ids, n_want);
            assert_memory_equal(ids.ids, want, n_want * sizeof *want);
            id_list_deinit(&ids);
        }
        merge_deinit(&merge);
        bpe_deinit(&bpe);
        vocab_deinit(&vocab);
    }
}

static void whole_words_win_only_where_told(void **state) {
    (void)state;
    for (int takes = 0; takes < 2; takes++) {
        struct gguf *gguf;
        struct vocab vocab;
        struct bpe bpe;
        struct merge merge;
        struct id_list ids;
        small_bpe(&small);
        int32_t id = small_add(&small, "xyz", 1, 0); /* no merges lead to it */
        small_write(&small);
        assert_int_equal(gguf_open_bytes(&gguf, small.bytes, small.n_bytes, NULL), STATUS_OK);
        assert_int_equal(vocab_load(&vocab, gguf, NULL), STATUS_OK);
        assert_int_equal(bpe_load(&bpe, &vocab, gguf, takes, NULL), STATUS_OK);
        gguf_close(&gguf);
        merge_init(&merge);
        id_list_init(&ids, 10);
        assert_int_equal(bpe_encode_word(&bpe, &merge, "xyz", 3, &ids), STATUS_OK);
        assert_int_equal(ids.n_ids, takes ? 1 : 3);
        assert_int_equal(ids.ids[0], takes ? id : 'x');
        id_list_deinit(&ids);
        merge_deinit(&merge);
        bpe_deinit(&bpe);
        vocab_deinit(&vocab);
    }
}

/* SentencePiece: cutting the text into pieces first gives what the whole text gives. */
static void pieces_equal_the_whole(void **state) {
    (void)state;
    static const char *const extra[] = {"b\xe2\x96\x81"
                                        "a",
                                        "\xe2\x96\x81"
                                        "ab",
                                        "aa",
                                        "\xe2\x96\x81"
                                        "b"};
    for (int round = 0; round < 2; round++) {
        struct gguf *gguf;
        struct vocab vocab;
        struct spm spm;
        struct merge merge;
        small_spm(&small);
        for (size_t i = (size_t)round; i < 4; i++)
            small_add(&small, extra[i], 1, 1 + (float)i); /* round 0 joins over a space */
        small.n_scores = small.n_tokens;
        small_write(&small);
        assert_int_equal(gguf_open_bytes(&gguf, small.bytes, small.n_bytes, NULL), STATUS_OK);
        assert_int_equal(vocab_load(&vocab, gguf, NULL), STATUS_OK);
        gguf_close(&gguf);
        spm_init(&spm, &vocab);
        merge_init(&merge);
        srand(9);
        for (int i = 0; i < 3000; i++) {
            char text[60];
            size_t n = 1 + (size_t)rand() % sizeof text, n_pieces = 0;
            for (size_t k = 0; k < n; k++) text[k] = "ab  c"[rand() % 5];
            struct id_list whole, pieces;
            id_list_init(&whole, 100);
            id_list_init(&pieces, 100);
            assert_int_equal(spm_encode_piece(&spm, &merge, text, n, &whole), STATUS_OK);
            for (size_t from = 0, n_piece; from < n; from += n_piece, n_pieces++) {
                n_piece = spm_next_piece(&spm, text + from, n - from);
                assert_true(n_piece >= 1 && n_piece <= n - from);
                assert_int_equal(spm_encode_piece(&spm, &merge, text + from, n_piece, &pieces), STATUS_OK);
            }
            assert_int_equal(pieces.n_ids, whole.n_ids);
            assert_memory_equal(pieces.ids, whole.ids, whole.n_ids * sizeof *whole.ids);
            id_list_deinit(&whole);
            id_list_deinit(&pieces);
        }
        merge_deinit(&merge);
        vocab_deinit(&vocab);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equals_the_definition),
        cmocka_unit_test(whole_words_win_only_where_told),
        cmocka_unit_test(pieces_equal_the_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
