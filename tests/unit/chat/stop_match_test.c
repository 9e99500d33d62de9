/* stop_match: the same text whatever the pieces. */
#include "support/test.h"

#include <string.h>

#include "chat/stop_match.h"

/* The text up to the stop that ends first, by plain search. */
static size_t expected_length(const char *text, const struct stop_string *stops, int n_stops) {
    for (size_t end = 1; end <= strlen(text); end++)
        for (size_t begin = 0; begin < end; begin++)
            for (int i = 0; i < n_stops; i++)
                if (stops[i].n_bytes == end - begin && memcmp(text + begin, stops[i].ptr, end - begin) == 0)
                    return begin;
    return strlen(text);
}

/* Pieces of piece bytes; checks that nothing is held that no stop could begin with. */
static void check(const char *text, size_t piece, const struct stop_string *stops, int n_stops) {
    struct stop_match match;
    struct str out;
    str_init(&out, 10000);
    stop_match_init(&match, stops, n_stops, false);
    for (size_t i = 0; i < strlen(text) && match.found < 0; i += piece) {
        size_t n = strlen(text) - i < piece ? strlen(text) - i : piece;
        assert_int_equal(stop_match_push(&match, text + i, n, &out), STATUS_OK);
        if (match.found >= 0) break;
        bool is_prefix = match.held.n_bytes == 0;
        for (int s = 0; s < n_stops; s++)
            is_prefix |=
                match.held.n_bytes < stops[s].n_bytes && memcmp(stops[s].ptr, match.held.ptr, match.held.n_bytes) == 0;
        assert_true(is_prefix);
    }
    if (match.found < 0) assert_int_equal(stop_match_finish(&match, &out), STATUS_OK);
    assert_int_equal(out.n_bytes, expected_length(text, stops, n_stops));
    assert_memory_equal(out.ptr, text, out.n_bytes);
    stop_match_deinit(&match);
    str_deinit(&out);
}

static void every_cut_gives_the_same(void **state) {
    static const struct stop_string sets[][2] = {{{"DEFGHIJ", 7}, {"ZZZ", 3}}, {{"abab", 4}, {"ba", 2}},
                                                 {{"aab", 3}, {"aaaa", 4}},    {{"\xe6\xa0\xaa", 3}, {"x\xc3\xa9", 3}},
                                                 {{"bcd", 3}, {"abcdef", 6}},  {{"b", 1}, {"never", 5}}};
    static const char *const texts[] = {"Here: ABCDEFGHIJK", "ababab",      "aaab",  "aaaaab", "a\xe6\xa0\xaa",
                                        "x\xc3\xa9",         "abcdefg",     "abcde", "ZZ",     "ZZZZ",
                                        "nevnever",          "DEFGHDEFGHIJ"};
    (void)state;
    for (size_t s = 0; s < sizeof sets / sizeof sets[0]; s++)
        for (size_t t = 0; t < sizeof texts / sizeof texts[0]; t++)
            for (size_t piece = 1; piece <= 8; piece++) {
                check(texts[t], piece, sets[s], 2);
                check(texts[t], piece, sets[s], 1);
                check(texts[t], piece, sets[s], 0);
            }
}

static void a_stop_can_be_kept(void **state) {
    static const struct stop_string stop = {"END", 3};
    struct stop_match match;
    struct str out;
    (void)state;
    str_init(&out, 100);
    stop_match_init(&match, &stop, 1, true);
    assert_int_equal(stop_match_push(&match, "onE", 3, &out), STATUS_OK);
    assert_string_equal(out.ptr, "on");
    assert_int_equal(stop_match_push(&match, "NDmore", 6, &out), STATUS_OK);
    assert_string_equal(out.ptr, "onEND");
    assert_int_equal(match.found, 0);
    assert_int_equal(stop_match_push(&match, "more", 4, &out), STATUS_OK);
    assert_string_equal(out.ptr, "onEND");
    stop_match_deinit(&match);
    str_deinit(&out);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_cut_gives_the_same),
                                       cmocka_unit_test(a_stop_can_be_kept)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
