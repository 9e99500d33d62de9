#include "kernelcheck/gemm_check.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "kernels/dequantize.h"
#include "kernels/pack.h"
#include "kernels/scalar/unpack_scalar.h"

#define N_ROWS 140 /* of a set; calls take up to 129 of them */
#define N_COLS 112
#define MAX_CALL_ROWS 129
#define MAX_CALL_COLS 96
#define MAX_K 1536

void gemm_check_call(const struct kernel_table *table, enum dtype dtype, const void *packed,
                     const struct gemm_input *input, float *out, int out_stride, int n_rows, int n_cols, int k) {
    gemm_q8_fn *q8 = kernel_table_gemm_q8(table, dtype);
    if (q8)
        q8(packed, &input->act, out, out_stride, n_rows, n_cols, k);
    else
        kernel_table_gemm_float(table, dtype)(packed, input->x, input->x_stride, out, out_stride, n_rows, n_cols, k);
}

/* One k, kind of data and form of activations, and what the scalar kernel makes of it in one call. */
struct set {
    enum gen_kind kind;
    enum act_q8_form form;
    int k;
    uint8_t *blocks; /* [N_COLS][k] in file order */
    uint8_t *packed;
    float *x; /* [N_ROWS][k] */
    struct gemm_input input;
    float *expected; /* [N_ROWS][N_COLS] */
};

static bool is_q8(const struct check *check) {
    return kernel_table_gemm_q8(check->scalar, check->dtype) != NULL;
}

static size_t row_bytes(enum dtype dtype, int k) {
    return (size_t)(k / dtype_block_elements(dtype)) * (size_t)dtype_block_bytes(dtype);
}

static void *taken(size_t n_bytes) {
    void *p = mem_alloc(n_bytes);
    REQUIRE(p);
    return p;
}

/* Weights of `kind`; activations of another kind as often as of the same. */
static void set_init(struct set *set, struct check *check, enum gen_kind kind, enum act_q8_form form, int k) {
    size_t bytes = row_bytes(check->dtype, k), tile_bytes = pack_tile_bytes(check->dtype, k);
    enum gen_kind x_kind = gen_below(&check->gen, 2) ? kind : (enum gen_kind)gen_below(&check->gen, GEN_N_KINDS);
    *set = (struct set){.kind = kind,
                        .form = form,
                        .k = k,
                        .blocks = taken(bytes * N_COLS),
                        .packed = taken(tile_bytes * (N_COLS / GEMM_TILE_COLS)),
                        .x = taken((size_t)(N_ROWS * k) * sizeof(float)),
                        .expected = taken(N_ROWS * N_COLS * sizeof(float))};
    gen_blocks(&check->gen, kind, check->dtype, set->blocks, (size_t)(N_COLS * k / dtype_block_elements(check->dtype)));
    for (int tile = 0; tile < N_COLS / GEMM_TILE_COLS; tile++)
        pack_tile(check->dtype, set->blocks, N_COLS, tile * GEMM_TILE_COLS, k, set->packed + tile_bytes * (size_t)tile);
    gen_floats(&check->gen, x_kind, set->x, (size_t)(N_ROWS * k));
    set->input.x = set->x, set->input.x_stride = k;
    if (is_q8(check)) {
        quantize_q8_fn *quantize = form == ACT_INT16 ? check->scalar->quantize_q16 : check->scalar->quantize_q8;
        set->input.act = act_q8_at(taken(act_q8_bytes(form, N_ROWS, k)), form, N_ROWS, k);
        if (kind == GEN_MAX)
            gen_act_max(&check->gen, &set->input.act, N_ROWS, k);
        else
            quantize(set->x, &set->input.act, N_ROWS, k);
    }
    gemm_check_call(check->scalar, check->dtype, set->packed, &set->input, set->expected, N_COLS, N_ROWS, N_COLS, k);
}

static void set_deinit(struct set *set) {
    mem_free(set->blocks);
    mem_free(set->packed);
    mem_free(set->x);
    mem_free(set->input.act.q);
    mem_free(set->expected);
}

/* ---- calls between guards ---- */

struct guards {
    struct guard packed, x, q, q_low, d, dsum, nsum32, nsum16, out;
};

static void guards_init(struct guards *guards, enum dtype dtype) {
    size_t n = MAX_CALL_ROWS * (MAX_K / 32);
    guard_init(&guards->packed, pack_tile_bytes(dtype, MAX_K) * (MAX_CALL_COLS / GEMM_TILE_COLS));
    guard_init(&guards->x, MAX_CALL_ROWS * (MAX_K + 16) * sizeof(float));
    guard_init(&guards->q, n * 32);
    guard_init(&guards->q_low, n * 32);
    guard_init(&guards->d, n * 4);
    guard_init(&guards->dsum, n * 4);
    guard_init(&guards->nsum32, n * 4);
    guard_init(&guards->nsum16, n * 8);
    guard_init(&guards->out, MAX_CALL_ROWS * (MAX_CALL_COLS + 64) * sizeof(float));
}

/* Rows row_begin.. of the set's operand, each array exactly as long as n_rows need. The arrays of act_q8 begin at a
 * page or end at one: kernels are also handed rows from the middle of a batch, so no array has more than the alignment
 * of a block. */
static struct gemm_input place_input(const struct check *check, const struct guards *guards, const struct set *set,
                                     int row_begin, int n_rows, enum guard_place place, int x_gap) {
    struct gemm_input input = {.x_stride = set->k + x_gap};
    if (is_q8(check)) {
        struct act_q8 from = act_q8_from_row(set->input.act, row_begin, set->k);
        size_t n = (size_t)n_rows * (size_t)(set->k / 32);
        enum guard_place aligned = place == GUARD_AT_END ? GUARD_AT_END : GUARD_AT_BEGIN;
        input.act =
            (struct act_q8){.q = guard_copy(&guards->q, from.q, n * 32, aligned),
                            .q_low = from.q_low ? guard_copy(&guards->q_low, from.q_low, n * 32, aligned) : NULL,
                            .d = guard_copy(&guards->d, from.d, n * 4, aligned),
                            .dsum = guard_copy(&guards->dsum, from.dsum, n * 4, aligned),
                            .nsum32 = guard_copy(&guards->nsum32, from.nsum32, n * 4, aligned),
                            .nsum16 = guard_copy(&guards->nsum16, from.nsum16, n * 8, aligned)};
        return input;
    }
    size_t stride = (size_t)input.x_stride, n = stride * (size_t)(n_rows - 1) + (size_t)set->k;
    float *x = guard_place(&guards->x, n * sizeof(float), place);
    guard_paint(x, n * sizeof(float));
    for (int i = 0; i < n_rows; i++)
        memcpy(x + stride * (size_t)i, set->x + (size_t)(row_begin + i) * (size_t)set->k,
               (size_t)set->k * sizeof(float));
    input.x = x;
    return input;
}

struct call {
    int row_begin, n_rows, tile_begin, n_cols;
};

static void check_call(struct check *check, const struct guards *guards, const struct set *set, struct call call) {
    static const int gaps[] = {0, 1, 3, 16, 64};
    struct gen *gen = &check->gen;
    int stride = call.n_cols + gaps[gen_below(gen, 5)], x_gap = gaps[gen_below(gen, 4)];
    size_t tile_bytes = pack_tile_bytes(check->dtype, set->k);
    size_t n_tiles = (size_t)((call.n_cols + GEMM_TILE_COLS - 1) / GEMM_TILE_COLS);
    enum guard_place place = gen_below(gen, 3) ? GUARD_AT_END : gen_below(gen, 2) ? GUARD_SHIFTED : GUARD_AT_BEGIN;
    const void *packed = guard_copy(&guards->packed, set->packed + tile_bytes * (size_t)call.tile_begin,
                                    tile_bytes * n_tiles, GUARD_AT_END);
    struct gemm_input input = place_input(check, guards, set, call.row_begin, call.n_rows, place, x_gap);
    size_t out_bytes = ((size_t)stride * (size_t)(call.n_rows - 1) + (size_t)call.n_cols) * sizeof(float);
    float *out = guard_place_output(&guards->out, out_bytes, gen_below(gen, 2) ? GUARD_AT_END : GUARD_SHIFTED);
    gemm_check_call(check->tested, check->dtype, packed, &input, out, stride, call.n_rows, call.n_cols, set->k);
    ++*check->n_cases;
    for (int i = 0; i < call.n_rows; i++) {
        const float *row = out + (size_t)i * (size_t)stride;
        check_equal(check, set->expected + (call.row_begin + i) * N_COLS + call.tile_begin * GEMM_TILE_COLS, row,
                    (size_t)call.n_cols, "data %d, int%d, k %d, %d rows, %d columns, row %d", set->kind,
                    set->form == ACT_INT16 ? 16 : 8, set->k, call.n_rows, call.n_cols, i);
        if (i + 1 < call.n_rows && !guard_is_painted(row + call.n_cols, (size_t)(stride - call.n_cols) * sizeof *row))
            check_fail(check, "k %d, %d rows, %d columns: written between rows %d and %d", set->k, call.n_rows,
                       call.n_cols, i, i + 1);
    }
    check_intact(check, &guards->out, out, out_bytes, "out");
}

static struct call random_call(struct check *check, int n_rows, int n_cols) {
    int n_tiles = (n_cols + GEMM_TILE_COLS - 1) / GEMM_TILE_COLS;
    return (struct call){gen_below(&check->gen, N_ROWS - n_rows + 1), n_rows,
                         gen_below(&check->gen, N_COLS / GEMM_TILE_COLS - n_tiles + 1), n_cols};
}

/* All row counts with all column counts. */
static void check_all_shapes(struct check *check, const struct guards *guards, const struct set *sets, int n_sets) {
    for (int n_cols = 1; n_cols <= 70; n_cols += check->is_slow ? 7 : 1)
        for (int i = 1; i <= 42; i += check->is_slow ? 3 : 1) {
            int n_rows = i == 41 ? 64 : i == 42 ? MAX_CALL_ROWS : i;
            check_call(check, guards, &sets[gen_below(&check->gen, n_sets)], random_call(check, n_rows, n_cols));
        }
}

/* Over all kinds every row count comes up; column counts are random. */
static void check_some_shapes(struct check *check, const struct guards *guards, const struct set *set) {
    int n_calls = check->is_slow ? 4 : 16;
    for (int i = 0; i < n_calls; i++) {
        int n_rows = (((int)set->kind * 2 + set->form) * n_calls + i) % 41;
        if (n_rows == 0) n_rows = MAX_CALL_ROWS;
        check_call(check, guards, set, random_call(check, n_rows, gen_between(&check->gen, 1, MAX_CALL_COLS)));
    }
}

static int depths(enum dtype dtype, const int **out) {
    static const int plain[] = {1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 33, 64, 100, 257, 512, 576, 1536};
    static const int by_32[] = {32, 64, 96, 128, 160, 256, 512, 576, 1536};
    static const int by_256[] = {256, 512, 768, 1536};
    int block = dtype_block_elements(dtype);
    *out = block == 1 ? plain : block == 32 ? by_32 : by_256;
    return block == 1 ? (int)(sizeof plain / sizeof *plain) : block == 32 ? 9 : 4;
}

/* Sets of every kind and, for quantized weights, both forms of activations. Returns how many. */
static int sets_init(struct set sets[2 * GEN_N_KINDS], struct check *check, int k) {
    int n_sets = is_q8(check) ? 2 * GEN_N_KINDS : GEN_N_KINDS;
    for (int i = 0; i < n_sets; i++)
        set_init(&sets[i], check, (enum gen_kind)(i % GEN_N_KINDS), i < GEN_N_KINDS ? ACT_INT8 : ACT_INT16, k);
    return n_sets;
}

/* Any rows and columns of a larger product have that product's bits: row and split invariance come with equality. */
void gemm_check_same(struct check *check) {
    struct guards guards;
    struct set sets[2 * GEN_N_KINDS];
    const int *ks;
    int n_ks = depths(check->dtype, &ks), full = dtype_block_elements(check->dtype) == 1 ? 11 : 0;
    guards_init(&guards, check->dtype);
    for (int i = 0; i < n_ks; i++) {
        int n_sets = sets_init(sets, check, ks[i]);
        for (int s = 0; s < n_sets; s++) check_some_shapes(check, &guards, &sets[s]);
        if (i == full) check_all_shapes(check, &guards, sets, n_sets);
        for (int s = 0; s < n_sets; s++) set_deinit(&sets[s]);
    }
}

/* ---- scalar against double ---- */

static double activation(const struct act_q8 *act, size_t at) {
    int n = act->q_low ? 128 * act->q[at] + act->q_low[at] : act->q[at];
    return (double)n * (double)act->d[at / 32];
}

/* Sums over k of x * w and of |x| * (|d q| + |m|): the terms that the kernel rounds. */
static void exact_product(const struct check *check, const struct set *set, const float *w, int row, int col,
                          double *out_sum, double *out_magnitude) {
    struct unpack_block block;
    const uint8_t *tile = set->packed + pack_tile_bytes(check->dtype, set->k) * (size_t)(col / GEMM_TILE_COLS);
    double sum = 0, magnitude = 0;
    for (int j = 0; j < set->k; j++) {
        size_t at = (size_t)row * (size_t)set->k + (size_t)j;
        double x = set->x[at], offset = 0;
        if (is_q8(check)) {
            x = activation(&set->input.act, at);
            if (j % 32 == 0) unpack_scalar_block(pack_order(check->dtype), tile, j / 32, &block);
            offset = fabs((double)block.m[j % 32 / 16][col % GEMM_TILE_COLS]);
        }
        sum += x * (double)w[j];
        magnitude += fabs(x) * (fabs((double)w[j]) + 2 * offset);
        if (is_q8(check) && !isfinite(set->input.act.dsum[at / 32]))
            magnitude = INFINITY; /* times a minimum of 0: NaN */
    }
    *out_sum = sum, *out_magnitude = magnitude;
}

static void check_against_double(struct check *check, const struct set *set) {
    float w[MAX_K];
    /* Per block at most two fma, the product of the scales, the dot's and dsum's rounding; 2^-149 x dot where scales
     * underflow. */
    int n_steps = is_q8(check) ? set->k / 32 * 2 + 5 : set->k + 1;
    double tiny = (double)n_steps * 0x1p-149;
    if (is_q8(check)) tiny *= 32.0 * 128 * (set->form == ACT_INT16 ? 127 * 128 : 127);
    for (int col = 0; col < N_COLS; col += 1 + gen_below(&check->gen, 5)) {
        dequantize_row(check->dtype, set->blocks + row_bytes(check->dtype, set->k) * (size_t)col, w, set->k);
        for (int row = gen_below(&check->gen, 20); row < N_ROWS; row += 20) {
            double sum, magnitude;
            exact_product(check, set, w, row, col, &sum, &magnitude);
            if (magnitude > 1e37) continue; /* may overflow on the way */
            check_near(check, sum, set->expected[row * N_COLS + col], 1.01 * n_steps * 0x1p-24 * magnitude + tiny,
                       "output", row * N_COLS + col);
            ++*check->n_cases;
        }
    }
}

void gemm_check_spec(struct check *check) {
    const int *ks;
    int n_ks = depths(check->dtype, &ks);
    struct set sets[2 * GEN_N_KINDS];
    for (int i = 0; i < n_ks; i++) {
        int n_sets = sets_init(sets, check, ks[i]);
        for (int s = 0; s < n_sets; s++) {
            check_against_double(check, &sets[s]);
            set_deinit(&sets[s]);
        }
    }
}
