#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/cpu.h"
#include "base/mem.h"
#include "base/thread.h"
#include "kernelcheck/check.h"
#include "kernelcheck/gemm_check.h"
#include "kernels/kv_i8.h"
#include "kernels/kv_q8_0.h"
#include "kernels/pack.h"

#define K 2048
#define N 2048
#define MAX_M 512
#define MAX_KEYS 4096
#define HEAD_DIM 128
#define BLOCK_TOKENS 64
#define N_TIMES 9
#define MAX_NS 25000000 /* for one line: a slow kernel is timed less often */
#define SCALAR_MAX_M 4

/* What the calls read and write; made once, reused by every operation. */
struct arena {
    float *x, *y, *out;    /* [MAX_M][K] */
    struct act_q8 acts[2]; /* of each form */
    void *packed;          /* of the last gemm's type */
    uint8_t *kv;           /* K then V of MAX_KEYS keys */
    const float *q[ATTENTION_MAX_ROWS];
    float angles[HEAD_DIM];
};

struct timed {
    const struct check_row *row;
    const struct kernel_table *table;
    struct arena *arena;
    enum act_q8_form form;
    int m; /* rows, or keys for attention */
};

typedef void timed_fn(const struct timed *timed);

static int compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values, int n) {
    qsort(values, (size_t)n, sizeof *values, compare);
    return n % 2 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

/* Median nanoseconds of a call and the median distance from it. */
static double time_of(timed_fn *run, const struct timed *timed, double *out_mad) {
    double ns[N_TIMES], off[N_TIMES];
    int n = 0, n_inner = 1;
    int64_t start = clock_now_ns(), first, all;
    run(timed);
    first = clock_now_ns() - start;
    if (first < 50000) n_inner = (int)(100000 / (first + 1)) + 1; /* the clock's own cost disappears */
    for (all = 0; n < N_TIMES && (n < 3 || all < MAX_NS); n++) {
        start = clock_now_ns();
        for (int i = 0; i < n_inner; i++) run(timed);
        int64_t took = clock_now_ns() - start;
        all += took;
        ns[n] = (double)took / n_inner;
    }
    double middle = median(ns, n);
    for (int i = 0; i < n; i++) off[i] = fabs(ns[i] - middle);
    *out_mad = median(off, n);
    return middle;
}

static void print_line(const struct timed *timed, const char *tier, const char *what, double ns, double mad,
                       double work, const char *unit) {
    printf("%-20s %-11s %-9s %11.1f us  +-%5.1f %%  %9.2f %s\n", timed->row->op, tier, what, ns / 1000, mad / ns * 100,
           work / ns, unit);
    fflush(stdout);
}

/* ---- operations ---- */

static void run_gemm(const struct timed *timed) {
    struct gemm_input input = {timed->arena->x, K, timed->arena->acts[timed->form]};
    gemm_check_call(timed->table, timed->row->dtype, timed->arena->packed, &input, timed->arena->out, N, timed->m, N,
                    K);
}

static void run_row_op(const struct timed *timed) {
    struct arena *arena = timed->arena;
    const struct kernel_table *table = timed->table;
    const char *op = timed->row->op;
    int64_t n = (int64_t)timed->m * K;
    if (strcmp(op, "quantize_q8") == 0) table->quantize_q8(arena->x, &arena->acts[ACT_INT8], timed->m, K);
    if (strcmp(op, "quantize_q16") == 0) table->quantize_q16(arena->x, &arena->acts[ACT_INT16], timed->m, K);
    if (strcmp(op, "rms_norm") == 0) table->rms_norm(arena->x, arena->y, 1e-5f, arena->out, timed->m, K);
    if (strcmp(op, "gate_silu") == 0) table->gate_silu(arena->out, arena->y, n);
    if (strcmp(op, "gate_gelu") == 0) table->gate_gelu(arena->out, arena->y, n);
    if (strcmp(op, "softmax_weights") == 0) table->softmax_weights(arena->x, 4, 1, arena->out, n);
    if (strcmp(op, "add") == 0) table->add(arena->out, arena->y, n);
    for (int row = 0; row < timed->m; row++) {
        float *x = arena->out + row * K;
        if (strcmp(op, "rope_pairs") == 0) table->rope_pairs(x, arena->angles, K / HEAD_DIM, HEAD_DIM, HEAD_DIM / 2);
        if (strcmp(op, "rope_halves") == 0) table->rope_halves(x, arena->angles, K / HEAD_DIM, HEAD_DIM, HEAD_DIM / 2);
    }
}

static attention_fold_fn *fold_of(const struct kernel_table *table, enum dtype dtype, bool is_rows) {
    switch (dtype) {
    case DTYPE_F16: return is_rows ? table->attention_rows_f16 : table->attention_keys_f16;
    case DTYPE_I8: return is_rows ? table->attention_rows_i8 : table->attention_keys_i8;
    case DTYPE_Q8_0: return is_rows ? table->attention_rows_q8_0 : table->attention_keys_q8_0;
    default: return is_rows ? table->attention_rows_f32 : table->attention_keys_f32;
    }
}

/* K or V of one block. */
static size_t kv_bytes(enum dtype dtype) {
    if (dtype == DTYPE_I8) return kv_i8_block_bytes(BLOCK_TOKENS, HEAD_DIM);
    if (dtype == DTYPE_Q8_0) return kv_q8_0_block_bytes(BLOCK_TOKENS, HEAD_DIM);
    return (size_t)dtype_block_bytes(dtype) * BLOCK_TOKENS * HEAD_DIM;
}

static void run_attention(const struct timed *timed) {
    const void *k_blocks[ATTENTION_PARTITION_KEYS / BLOCK_TOKENS], *v_blocks[ATTENTION_PARTITION_KEYS / BLOCK_TOKENS];
    int first_key[ATTENTION_MAX_ROWS] = {0}, last_key[ATTENTION_MAX_ROWS];
    bool is_rows = strncmp(timed->row->op, "attention_rows", 14) == 0;
    attention_fold_fn *fold = fold_of(timed->table, timed->row->dtype, is_rows);
    size_t bytes = kv_bytes(timed->row->dtype);
    for (int r = 0; r < ATTENTION_MAX_ROWS; r++) last_key[r] = timed->m - 1;
    struct attention_rows rows = {is_rows ? ATTENTION_MAX_ROWS : 1, timed->arena->q, first_key, last_key};
    struct attention_keys keys = {k_blocks, v_blocks, BLOCK_TOKENS, HEAD_DIM};
    float *out = timed->arena->out;
    struct attention_state state = {out, out + 16, out + 32};
    for (int begin = 0; begin < timed->m; begin += ATTENTION_PARTITION_KEYS) {
        for (int b = 0; b < ATTENTION_PARTITION_KEYS / BLOCK_TOKENS; b++) {
            k_blocks[b] = timed->arena->kv + bytes * (size_t)(begin / BLOCK_TOKENS + b);
            v_blocks[b] = timed->arena->kv + bytes * (size_t)(MAX_KEYS / BLOCK_TOKENS + begin / BLOCK_TOKENS + b);
        }
        fold(&rows, &keys, begin, begin + ATTENTION_PARTITION_KEYS, &state);
    }
}

/* ---- rows of the table ---- */

static void bench_gemm_rows(struct timed *timed, const char *tier, enum act_q8_form form, int m) {
    double mad;
    char what[16];
    if (strcmp(tier, "scalar") == 0 && m > SCALAR_MAX_M) return;
    timed->m = m, timed->form = form;
    double ns = time_of(run_gemm, timed, &mad);
    snprintf(what, sizeof what, form == ACT_INT16 ? "M=%d i16" : "M=%d", m);
    print_line(timed, tier, what, ns, mad, 2.0 * m * N * K, "GOPS");
}

static void bench_gemm(struct timed *timed, const char *tier) {
    static const int row_counts[] = {1, 2, 4, 8, 16, 32, 64, 128, MAX_M};
    for (int i = 0; i < 9; i++) {
        int m = row_counts[i];
        bench_gemm_rows(timed, tier, ACT_INT8, m);
        if ((m == 1 || m == 128) && kernel_table_gemm_q8(timed->table, timed->row->dtype))
            bench_gemm_rows(timed, tier, ACT_INT16, m);
    }
}

static void bench_attention(struct timed *timed, const char *tier) {
    bool is_rows = strncmp(timed->row->op, "attention_rows", 14) == 0;
    for (timed->m = 1024; timed->m <= MAX_KEYS; timed->m *= 4) {
        double mad, ns = time_of(run_attention, timed, &mad);
        char what[16];
        snprintf(what, sizeof what, "keys=%d", timed->m);
        print_line(timed, tier, what, ns, mad, 4.0 * timed->m * HEAD_DIM * (is_rows ? ATTENTION_MAX_ROWS : 1), "GOPS");
    }
}

/* Bytes read and written of the floats alone. */
static void bench_rows(struct timed *timed, const char *tier) {
    double mad;
    timed->m = 16;
    double ns = time_of(run_row_op, timed, &mad), n = 16.0 * K * sizeof(float);
    bool reads_two = strncmp(timed->row->op, "gate", 4) == 0 || strcmp(timed->row->op, "add") == 0;
    print_line(timed, tier, "16 rows", ns, mad,
               strcmp(timed->row->op, "quantize_q8") == 0    ? n * 1.25
               : strcmp(timed->row->op, "quantize_q16") == 0 ? n * 1.5
                                                             : n * (2 + reads_two),
               "GB/s");
}

#define PEAK_ITERATIONS 10000

static void run_peak(const struct timed *timed) {
    volatile uint32_t sum = timed->table->peak_dots(PEAK_ITERATIONS, 15, 127);
    (void)sum;
}

static void bench_peak(const struct timed *timed, const char *tier) {
    double mad, ns = time_of(run_peak, timed, &mad);
    print_line(timed, tier, "registers", ns, mad, 2.0 * PEAK_ITERATIONS * PEAK_DOTS_MACS, "GOPS");
}

static void *taken(size_t n_bytes) {
    void *p = mem_alloc(n_bytes);
    REQUIRE(p);
    return p;
}

static void arena_init(struct arena *arena, struct gen *gen) {
    *arena = (struct arena){.x = taken(MAX_M * K * 4),
                            .y = taken(MAX_M * K * 4),
                            .out = taken(MAX_M * N * 4),
                            .packed = mem_map_pages((size_t)K * N * 4),
                            .kv = mem_map_pages(2 * MAX_KEYS * HEAD_DIM * 4)};
    REQUIRE(arena->packed && arena->kv);
    for (int form = ACT_INT8; form <= ACT_INT16; form++)
        arena->acts[form] =
            act_q8_at(taken(act_q8_bytes((enum act_q8_form)form, MAX_M, K)), (enum act_q8_form)form, MAX_M, K);
    gen_floats(gen, GEN_NORMAL, arena->x, MAX_M * K);
    for (int i = 0; i < ATTENTION_MAX_ROWS; i++) arena->q[i] = arena->x + i * HEAD_DIM;
}

/* Random bytes, scales that give scores around 1. */
static void fill_kv_bytes(uint8_t *kv, struct gen *gen, enum dtype dtype) {
    const size_t bytes = kv_bytes(dtype), scales_off = kv_i8_scales_off(BLOCK_TOKENS, HEAD_DIM); /* of both types */
    const size_t step = dtype == DTYPE_I8 ? sizeof(float) : sizeof(uint16_t);
    for (int b = 0; b < 2 * MAX_KEYS / BLOCK_TOKENS; b++, kv += bytes) {
        for (size_t i = 0; i < bytes; i++) kv[i] = (uint8_t)gen_u64(gen);
        for (size_t off = scales_off; off < bytes; off += step) {
            float scale = 0.001f * (float)gen_between(gen, 1, 4);
            uint16_t half = dtype_f32_to_f16(scale);
            memcpy(kv + off, dtype == DTYPE_I8 ? (const void *)&scale : (const void *)&half, step);
        }
    }
}

/* Data of the row's type. */
static void arena_fill(struct arena *arena, struct gen *gen, const struct check_row *row,
                       const struct kernel_table *scalar) {
    /* What stays as it is however often an operation in place is applied: silu(20) * 1, and turns that keep lengths. */
    for (int i = 0; i < MAX_M * K; i++) arena->out[i] = 20.0f, arena->y[i] = 1.0f;
    for (int i = 0; i < HEAD_DIM; i++) arena->angles[i] = i % 2 ? 0.8f : 0.6f;
    if (strncmp(row->op, "attention", 9) == 0 && (row->dtype == DTYPE_I8 || row->dtype == DTYPE_Q8_0))
        fill_kv_bytes(arena->kv, gen, row->dtype);
    else if (strncmp(row->op, "attention", 9) == 0)
        gen_blocks(gen, GEN_NORMAL, row->dtype, arena->kv, 2 * MAX_KEYS * HEAD_DIM);
    if (strncmp(row->op, "gemm", 4) != 0) return;
    size_t block = (size_t)dtype_block_elements(row->dtype), tile_bytes = pack_tile_bytes(row->dtype, K);
    uint8_t *blocks = taken((size_t)K * GEMM_TILE_COLS / block * (size_t)dtype_block_bytes(row->dtype));
    for (int col = 0; col < N; col += GEMM_TILE_COLS) {
        if (col % 256 == 0) gen_blocks(gen, GEN_NORMAL, row->dtype, blocks, (size_t)K * GEMM_TILE_COLS / block);
        pack_tile(row->dtype, blocks, GEMM_TILE_COLS, 0, K,
                  (char *)arena->packed + tile_bytes * (size_t)(col / GEMM_TILE_COLS));
    }
    mem_free(blocks);
    scalar->quantize_q8(arena->x, &arena->acts[ACT_INT8], MAX_M, K);
    scalar->quantize_q16(arena->x, &arena->acts[ACT_INT16], MAX_M, K);
}

static void bench_row(struct timed *timed, const char *tier) {
    const char *op = timed->row->op;
    if (strncmp(op, "gemm", 4) == 0)
        bench_gemm(timed, tier);
    else if (strncmp(op, "attention_rows", 14) == 0 || strncmp(op, "attention_keys", 14) == 0)
        bench_attention(timed, tier);
    else if (strcmp(op, "peak_dots") == 0)
        bench_peak(timed, tier);
    else if (strcmp(op, "attention_merge") != 0 && strcmp(op, "attention_finish") != 0 &&
             strncmp(op, "kv_store", 8) != 0 && strcmp(op, "hadamard") != 0)
        bench_rows(timed, tier);
}

int bench_run(const char *op) {
    struct gen gen = gen_start(1, "bench");
    struct kernel_table scalar, table;
    struct arena arena;
    const char *name, *tier, *previous;
    unsigned detected = cpu_detect();
    thread_pin(0);
    kernel_table_choose(&scalar, CPU_TIER_scalar);
    arena_init(&arena, &gen);
    for (int i = 0; kernel_table_row(&scalar, i, &name, &tier); i++) {
        if (op && strcmp(op, name) != 0) continue;
        struct timed timed = {.row = check_find(name), .table = &table, .arena = &arena};
        REQUIRE(timed.row);
        arena_fill(&arena, &gen, timed.row, &scalar);
        previous = "";
        for (int bit = 0; bit < cpu_n_tiers(); bit++) {
            if (!(detected >> bit & 1)) continue;
            kernel_table_choose(&table, detected & ((2u << bit) - 1));
            kernel_table_row(&table, i, &name, &tier);
            if (strcmp(tier, previous) != 0) bench_row(&timed, tier);
            previous = tier;
        }
    }
    return 0;
}
