#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernelcheck/check.h"

#define MAX_ROWS 17
#define MAX_K 2048

struct arrays {
    struct guard x, q, q_low, d, dsum, nsum32, nsum16;
};

static enum act_q8_form form_of(const struct check *check) {
    return strcmp(check->op, "quantize_q16") == 0 ? ACT_INT16 : ACT_INT8;
}

static quantize_q8_fn *quantize_of(const struct check *check, const struct kernel_table *table) {
    return form_of(check) == ACT_INT16 ? table->quantize_q16 : table->quantize_q8;
}

/* The largest n of the form. */
static int max_n(const struct check *check) {
    return form_of(check) == ACT_INT16 ? 127 * 128 : 127;
}

static void arrays_init(struct arrays *arrays) {
    size_t n = MAX_ROWS * (MAX_K / 32);
    guard_init(&arrays->x, n * 32 * sizeof(float));
    guard_init(&arrays->q, n * 32);
    guard_init(&arrays->q_low, n * 32);
    guard_init(&arrays->d, n * 4);
    guard_init(&arrays->dsum, n * 4);
    guard_init(&arrays->nsum32, n * 4);
    guard_init(&arrays->nsum16, n * 8);
}

static struct act_q8 place(const struct arrays *arrays, enum act_q8_form form, size_t n, enum guard_place at) {
    return (struct act_q8){.q = guard_place_output(&arrays->q, n * 32, at),
                           .q_low = form == ACT_INT16 ? guard_place_output(&arrays->q_low, n * 32, at) : NULL,
                           .d = guard_place_output(&arrays->d, n * 4, at),
                           .dsum = guard_place_output(&arrays->dsum, n * 4, at),
                           .nsum32 = guard_place_output(&arrays->nsum32, n * 4, at),
                           .nsum16 = guard_place_output(&arrays->nsum16, n * 8, at)};
}

static void check_bytes(const struct check *check, const struct guard *guard, const void *expected, const void *got,
                        size_t n_blocks, size_t block_bytes, const char *what) {
    for (size_t b = 0; b < n_blocks; b++)
        if (memcmp((const char *)expected + b * block_bytes, (const char *)got + b * block_bytes, block_bytes) != 0)
            check_fail(check, "%s differs in block %zu of %zu", what, b, n_blocks);
    check_intact(check, guard, got, n_blocks * block_bytes, what);
}

/* Values half-way between two steps, or, in the int16 form, two q: the largest is a power of two times max_n. */
static void make_ties(struct check *check, float *x, size_t n) {
    int max = max_n(check), unit = form_of(check) == ACT_INT16 && gen_below(&check->gen, 2) ? 128 : 1;
    for (size_t i = 0; i < n; i++) {
        float half = ((float)gen_between(&check->gen, -max / unit, max / unit - 1) + 0.5f) * (float)unit;
        x[i] = (i % 32 == 5 ? (float)max : half) * 0.25f;
    }
}

/* Blocks around the amax whose inverse is the first to be no finite number. */
static void make_tiny(struct check *check, float *x, size_t n) {
    float limit = (float)max_n(check) / FLT_MAX, amax = 0;
    for (size_t i = 0; i < n; i++) {
        if (i % 32 == 0) {
            amax = gen_below(&check->gen, 2) ? limit : limit * (0.5f + 1.5f * (float)gen_below(&check->gen, 100) / 100);
            for (int step = gen_below(&check->gen, 5); step > 0; step--) amax = nextafterf(amax, i % 64 ? 0 : 1);
        }
        x[i] = i % 32 == 7 ? amax : amax * ((float)gen_between(&check->gen, -100, 100) / 100);
    }
}

static void make_input(struct check *check, enum gen_kind kind, float *x, size_t n) {
    gen_floats(&check->gen, kind, x, n);
    int other = gen_below(&check->gen, 8);
    if (other == 0) make_ties(check, x, n);
    if (other == 1) make_tiny(check, x, n);
}

static void check_call(struct check *check, const struct arrays *arrays, enum gen_kind kind, int n_rows, int k) {
    static float x[MAX_ROWS * MAX_K];
    static _Alignas(64) char memory[1 << 17];
    size_t n = (size_t)n_rows * (size_t)(k / 32);
    enum act_q8_form form = form_of(check);
    REQUIRE(act_q8_bytes(form, n_rows, k) <= sizeof memory);
    make_input(check, kind, x, n * 32);
    struct act_q8 expected = act_q8_at(memory, form, n_rows, k);
    quantize_of(check, check->scalar)(x, &expected, n_rows, k);
    const float *placed = guard_copy(&arrays->x, x, n * 32 * sizeof *x, (enum guard_place)gen_below(&check->gen, 3));
    struct act_q8 got = place(arrays, form, n, gen_below(&check->gen, 2) ? GUARD_AT_END : GUARD_AT_BEGIN);
    quantize_of(check, check->tested)(placed, &got, n_rows, k);
    ++*check->n_cases;
    check_bytes(check, &arrays->q, expected.q, got.q, n, 32, "q");
    if (form == ACT_INT16) check_bytes(check, &arrays->q_low, expected.q_low, got.q_low, n, 32, "q_low");
    check_bytes(check, &arrays->d, expected.d, got.d, n, 4, "d");
    check_bytes(check, &arrays->dsum, expected.dsum, got.dsum, n, 4, "dsum");
    check_bytes(check, &arrays->nsum32, expected.nsum32, got.nsum32, n, 4, "nsum32");
    check_bytes(check, &arrays->nsum16, expected.nsum16, got.nsum16, n, 8, "nsum16");
}

static enum gen_kind any_kind(struct check *check) {
    return (enum gen_kind)gen_below(&check->gen, GEN_N_KINDS);
}

void quantize_check_same(struct check *check) {
    struct arrays arrays;
    arrays_init(&arrays);
    for (int round = 0; round < (check->is_slow ? 1 : 12); round++) {
        for (int k = 32; k <= 640; k += 32)
            for (int kind = 0; kind < GEN_N_KINDS; kind++)
                check_call(check, &arrays, (enum gen_kind)kind, gen_between(&check->gen, 1, 4), k);
        for (int n_rows = 1; n_rows <= MAX_ROWS; n_rows++)
            check_call(check, &arrays, any_kind(check), n_rows, gen_below(&check->gen, 2) ? 576 : MAX_K);
    }
}

/* n of element i, fails unless its parts lie in their ranges. */
static int checked_n(const struct check *check, const struct act_q8 *act, size_t i) {
    int q = act->q[i], low = act->q_low ? act->q_low[i] : 0, n = act->q_low ? 128 * q + low : q;
    if (abs(q) > 127 || low < -64 || low > 63 || abs(n) > max_n(check))
        check_fail(check, "element %zu: q %d, q_low %d", i, q, low);
    return n;
}

static void check_block(const struct check *check, const float *x, const struct act_q8 *act, size_t b) {
    float amax = 0, limit = (float)max_n(check) / FLT_MAX;
    int sums[2] = {0, 0}, max = 0;
    for (int i = 0; i < 32; i++) {
        int n = checked_n(check, act, b * 32 + (size_t)i);
        amax = fabsf(x[i]) > amax ? fabsf(x[i]) : amax;
        max = abs(n) > max ? abs(n) : max;
        sums[i / 16] += n;
        /* Half a step and the roundings of d, of max_n / amax and of x times that, each of n x 2^-24 steps; a block too
         * small for max_n / amax may become zeros. */
        double step = 0.5 + 3.1 * max_n(check) * 0x1p-24, error = fabs((double)x[i] - (double)n * (double)act->d[b]);
        if (!(error <= (double)act->d[b] * step + 1.01 * (double)limit))
            check_fail(check, "x = %a of block %zu became %d x %a", (double)x[i], b, n, (double)act->d[b]);
    }
    if (act->d[b] != amax / (float)max_n(check) || (amax > 1.01f * limit && max != max_n(check)) ||
        (amax < 0.99f * limit && max != 0))
        check_fail(check, "block %zu: amax %a, d %a, largest n %d", b, (double)amax, (double)act->d[b], max);
    float dsum = act->d[b] * (float)(sums[0] + sums[1]);
    if (memcmp(&dsum, &act->dsum[b], sizeof dsum) != 0)
        check_fail(check, "block %zu: amax %a, dsum %a, should be %a", b, (double)amax, (double)act->dsum[b],
                   (double)dsum);
    if (act->nsum16[2 * b] != -sums[0] || act->nsum16[2 * b + 1] != -sums[1] || act->nsum32[b] != -sums[0] - sums[1])
        check_fail(check, "block %zu: amax %a: sums %d + %d, stored %d + %d and %d", b, (double)amax, -sums[0],
                   -sums[1], act->nsum16[2 * b], act->nsum16[2 * b + 1], act->nsum32[b]);
}

void quantize_check_spec(struct check *check) {
    static float x[64 * 32];
    static _Alignas(64) char memory[1 << 13];
    enum act_q8_form form = form_of(check);
    REQUIRE(act_q8_bytes(form, 64, 32) <= sizeof memory);
    struct act_q8 act = act_q8_at(memory, form, 64, 32);
    for (int round = 0; round < (check->is_slow ? 20 : 200); round++)
        for (int kind = 0; kind < GEN_N_KINDS; kind++) {
            make_input(check, (enum gen_kind)kind, x, 64 * 32);
            quantize_of(check, check->scalar)(x, &act, 64, 32);
            for (size_t b = 0; b < 64; b++) check_block(check, x + b * 32, &act, b);
            ++*check->n_cases;
        }
}
