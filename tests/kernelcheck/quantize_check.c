#include <math.h>
#include <string.h>

#include "kernelcheck/check.h"

#define MAX_ROWS 17
#define MAX_K 2048

struct arrays {
    struct guard x, q, d, dsum, nsum32, nsum16;
};

static void arrays_init(struct arrays *arrays) {
    size_t n = MAX_ROWS * (MAX_K / 32);
    guard_init(&arrays->x, n * 32 * sizeof(float));
    guard_init(&arrays->q, n * 32);
    guard_init(&arrays->d, n * 4);
    guard_init(&arrays->dsum, n * 4);
    guard_init(&arrays->nsum32, n * 4);
    guard_init(&arrays->nsum16, n * 8);
}

static struct act_q8 place(const struct arrays *arrays, size_t n, enum guard_place at) {
    return (struct act_q8){.q = guard_place_output(&arrays->q, n * 32, at),
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

/* Values half-way between two steps: the largest is 127 times a power of two. */
static void make_ties(struct check *check, float *x, size_t n) {
    for (size_t i = 0; i < n; i++) {
        float half = (float)gen_between(&check->gen, -127, 126) + 0.5f;
        x[i] = (i % 32 == 5 ? 127.0f : half) * 0.25f;
    }
}

static void check_call(struct check *check, const struct arrays *arrays, enum gen_kind kind, int n_rows, int k) {
    static float x[MAX_ROWS * MAX_K];
    static _Alignas(64) char memory[1 << 17];
    size_t n = (size_t)n_rows * (size_t)(k / 32);
    REQUIRE(act_q8_bytes(ACT_INT8, n_rows, k) <= sizeof memory);
    gen_floats(&check->gen, kind, x, n * 32);
    if (gen_below(&check->gen, 8) == 0) make_ties(check, x, n * 32);
    struct act_q8 expected = act_q8_at(memory, ACT_INT8, n_rows, k);
    check->scalar->quantize_q8(x, &expected, n_rows, k);
    const float *placed = guard_copy(&arrays->x, x, n * 32 * sizeof *x, (enum guard_place)gen_below(&check->gen, 3));
    struct act_q8 got = place(arrays, n, gen_below(&check->gen, 2) ? GUARD_AT_END : GUARD_AT_BEGIN);
    check->tested->quantize_q8(placed, &got, n_rows, k);
    ++*check->n_cases;
    check_bytes(check, &arrays->q, expected.q, got.q, n, 32, "q");
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

static void check_block(const struct check *check, const float *x, const struct act_q8 *act, size_t b) {
    float amax = 0;
    int sums[2] = {0, 0}, max = 0;
    for (int i = 0; i < 32; i++) {
        int q = act->q[b * 32 + (size_t)i];
        amax = fabsf(x[i]) > amax ? fabsf(x[i]) : amax;
        max = q > max ? q : -q > max ? -q : max;
        sums[i / 16] += q;
        /* Half a step and the roundings of d and 127 / amax; a block too small for 127 / amax may become zeros. */
        double error = fabs((double)x[i] - (double)q * (double)act->d[b]);
        if (!(error <= (double)act->d[b] * 0.5001 + 127 / 3.4e38))
            check_fail(check, "x = %a of block %zu became %d x %a", (double)x[i], b, q, (double)act->d[b]);
    }
    if (max > 127) check_fail(check, "block %zu: q of magnitude %d", b, max);
    if (amax > 1e-36f && (max != 127 || act->d[b] != amax / 127.0f))
        check_fail(check, "block %zu: amax %a, d %a, largest q %d", b, (double)amax, (double)act->d[b], max);
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
    REQUIRE(act_q8_bytes(ACT_INT8, 64, 32) <= sizeof memory);
    struct act_q8 act = act_q8_at(memory, ACT_INT8, 64, 32);
    for (int round = 0; round < (check->is_slow ? 20 : 200); round++)
        for (int kind = 0; kind < GEN_N_KINDS; kind++) {
            gen_floats(&check->gen, (enum gen_kind)kind, x, 64 * 32);
            check->scalar->quantize_q8(x, &act, 64, 32);
            for (size_t b = 0; b < 64; b++) check_block(check, x + b * 32, &act, b);
            ++*check->n_cases;
        }
}
