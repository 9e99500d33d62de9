/* Long runs take linear time in every reference vocabulary: processor time of 400,000 bytes against 200,000. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "support/test.h"
#include "tokenizer/tokenizer.h"
#include "weights/gguf.h"

#ifdef KVICK_SANITIZED
#define N_BYTES 20000 /* instrumented code is slow, and its times prove nothing: only that nothing breaks */
#define MAX_RATIO 10.0
#else
#define N_BYTES 200000
#define MAX_RATIO 2.3
#endif
#define MAX_SECONDS 1.0   /* for N_BYTES */
#define TOO_SHORT_S 0.004 /* below this the clock and the caches say more than the code */
#define N_ROUNDS 3
#define N_TRIES 4 /* a ratio that noise has spoiled is measured anew; a quadratic one stays at 4 */

static double processor_seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static double encode_seconds(const struct tokenizer *tokenizer, const char *text, size_t n_bytes) {
    struct id_list ids;
    struct status_note note = {0};
    id_list_init(&ids, 2 * n_bytes + 1);
    double start = processor_seconds();
    if (tokenizer_encode(tokenizer, text, n_bytes, 0, &ids, &note)) fail_msg("%s", note.text);
    double seconds = processor_seconds() - start;
    id_list_deinit(&ids);
    return seconds;
}

static int compare_reals(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static double median_seconds(const struct tokenizer *tokenizer, const char *text, size_t n_bytes, int n_rounds) {
    double seconds[N_ROUNDS];
    for (int i = 0; i < n_rounds; i++) seconds[i] = encode_seconds(tokenizer, text, n_bytes);
    qsort(seconds, (size_t)n_rounds, sizeof seconds[0], compare_reals);
    return seconds[n_rounds / 2];
}

static void fill(char *text, size_t n_bytes, const char *unit) {
    size_t n_unit = unit ? strlen(unit) : 0;
    srand(1);
    for (size_t i = 0; i < n_bytes; i++) text[i] = unit ? unit[i % n_unit] : (char)(rand() >> 8);
}

static void check_vocab(const char *name, const char *path) {
    static const struct {
        const char *name, *unit;
    } texts[] = {
        {"equal letters", "a"},
        {"alternating letters", "ab"},
        {"spaces", " "},
        {"digits", "7"},
        {"newlines", "\n"},
        {"CJK", "\xe6\xa0\xaa"},
        {"random bytes", NULL},
        {"joined emoji", "\xf0\x9f\x91\xa9\xe2\x80\x8d\xf0\x9f\x92\xbb\xe2\x80\x8d"},
        {"equals signs", "="},
        {"accents", "\xc3\xa9"},
        {"spaces, newline", "   \n"},
        {"apostrophes", "'"},
    };
    static char text[2 * N_BYTES];
    struct gguf *gguf;
    struct tokenizer *tokenizer;
    struct status_note note = {0};
    if (gguf_open(&gguf, path, &note) || tokenizer_open(&tokenizer, gguf, &note)) fail_msg("%s: %s", name, note.text);
    gguf_close(&gguf);
    double worst = 0;
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        double half = 0, whole = 0;
        fill(text, sizeof text, texts[i].unit);
        for (int try = 0; try < N_TRIES; try++) {
            half = median_seconds(tokenizer, text, N_BYTES, try ? N_ROUNDS : 1);
            whole = median_seconds(tokenizer, text, sizeof text, try ? N_ROUNDS : 1);
            if (half < MAX_SECONDS &&
                (half < TOO_SHORT_S ? whole < 2 * TOO_SHORT_S * MAX_RATIO : whole <= MAX_RATIO * half))
                break;
            if (try == N_TRIES - 1)
                fail_msg("%s, %s: %.1f ms, twice as much %.1f ms", name, texts[i].name, half * 1e3, whole * 1e3);
        }
        if (half > worst) worst = half;
    }
    print_message("%s: at most %.1f ms for %d bytes\n", name, worst * 1e3, N_BYTES);
    tokenizer_close(&tokenizer);
}

static void golden_vocabularies(void **state) {
    (void)state;
    static const char *const names[] = {"gpt-2",     "llama-bpe", "qwen2",        "starcoder",
                                        "command-r", "llama-spm", "deepseek-llm", "phi-3"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char file[64];
        snprintf(file, sizeof file, "vocab/%s.gguf", names[i]);
        check_vocab(names[i], test_golden_file(file));
    }
}

static void smollm2(void **state) {
    (void)state;
    check_vocab("smollm2", test_model_file("smollm2"));
}

static void gemma3_270m(void **state) {
    (void)state;
    check_vocab("gemma3-270m", test_model_file("gemma3-270m"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(golden_vocabularies),
        cmocka_unit_test(smollm2),
        cmocka_unit_test(gemma3_270m),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
