#include "bench/kernel_bench.h"

#include <math.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "kernels/pack.h"
#include "kvcache/kv_layout.h"

#define MIN_COLD_BYTES ((size_t)128 << 20)
#define MAX_COLD_BYTES ((size_t)512 << 20)
#define SLOW_NS 300000000   /* a call that takes longer is not repeated */
#define STRIPS_PER_THREAD 6 /* as layer_ops cuts them */
#define STRIP_MIN_COLS 32
#define BLOCK_TOKENS 16 /* the engine's default */
#define PARTITION_BLOCKS (ATTENTION_PARTITION_KEYS / BLOCK_TOKENS)
#define ROPE_HEAD_DIM 128

struct kernel_bench {
    struct kernel_bench_plan plan;
    float *x, *y, *out;    /* [KERNEL_BENCH_MAX_ROWS][widest of n and k] */
    struct act_q8 acts[2]; /* of each form, over x */
    void *act_memory[2];
    uint8_t *cold, *file_rows; /* copies of what is read; 16 rows of a matrix in file order */
    size_t cold_bytes, row_bytes;
    enum dtype dtype, kv_dtype; /* of the weights in cold, of the keys and values; DTYPE_N: others are there */
    uint64_t random;
};

/* ---- data ---- */

/* splitmix64.   Source: Steele, Lea and Flood 2014. */
static uint64_t next_random(struct kernel_bench *bench) {
    uint64_t z = bench->random += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

/* Normal numbers of magnitude 1/8 to 1/4 in a plain type; scales of blocks are of F16. */
static void put_value(struct kernel_bench *bench, enum dtype dtype, uint8_t *out) {
    uint32_t bits = (uint32_t)next_random(bench), wide = (bits & 0x807fffff) | 0x3e000000;
    uint16_t half = dtype == DTYPE_F16 ? (uint16_t)((bits & 0x83ff) | 0x3000) : (uint16_t)(wide >> 16);
    if (dtype == DTYPE_F32)
        memcpy(out, &wide, sizeof wide);
    else
        memcpy(out, &half, sizeof half);
}

static void put_block(struct kernel_bench *bench, enum dtype dtype, uint8_t *out) {
    if (dtype_block_elements(dtype) == 1) {
        put_value(bench, dtype, out);
        return;
    }
    for (int i = 0; i < dtype_block_bytes(dtype); i++) out[i] = (uint8_t)next_random(bench);
    int off, n_scales = dtype_f16_scales(dtype, &off);
    for (int i = 0; i < n_scales; i++) put_value(bench, DTYPE_F16, out + off + 2 * i);
    if (dtype == DTYPE_MXFP4) out[0] = 126;
    if (dtype == DTYPE_IQ1_M) out[55] &= 0xbf; /* its scale's largest exponents would be infinite */
}

/* Repeats the first n_bytes of cold over all of it. */
static void repeat(struct kernel_bench *bench, size_t n_bytes) {
    for (size_t at = n_bytes; at < bench->cold_bytes; at += n_bytes)
        memcpy(bench->cold + at, bench->cold, at + n_bytes <= bench->cold_bytes ? n_bytes : bench->cold_bytes - at);
}

/* int8 and q8_0. */
static void fill_kv_bytes(struct kernel_bench *bench, enum dtype dtype, int head_dim) {
    const size_t block_bytes = BLOCK_TOKENS * kv_layout_vector_bytes(dtype, head_dim);
    const struct kernel_table *kernels = bench->plan.kernels;
    kv_store_fn *put = dtype == DTYPE_I8 ? kernels->kv_store_i8 : kernels->kv_store_q8_0;
    float k[ATTENTION_MAX_HEAD_DIM], v[ATTENTION_MAX_HEAD_DIM];
    for (int slot = 0; slot < BLOCK_TOKENS; slot++) {
        for (int d = 0; d < head_dim; d++) {
            put_value(bench, DTYPE_F32, (uint8_t *)&k[d]);
            put_value(bench, DTYPE_F32, (uint8_t *)&v[d]);
        }
        put(k, v, bench->cold, bench->cold + block_bytes, slot, BLOCK_TOKENS, head_dim);
    }
    repeat(bench, 2 * block_bytes);
}

static void fill_kv(struct kernel_bench *bench, enum dtype dtype) {
    const int item_bytes = dtype_block_bytes(dtype), n = BLOCK_TOKENS * ATTENTION_MAX_HEAD_DIM;
    for (int i = 0; i < n; i++) put_value(bench, dtype, bench->cold + i * item_bytes);
    repeat(bench, (size_t)(n * item_bytes));
}

static size_t last_cache_bytes(void) {
    long n_bytes = sysconf(_SC_LEVEL3_CACHE_SIZE);
    return n_bytes > 0 ? (size_t)n_bytes : 0;
}

static size_t copy_bytes(const struct kernel_bench *bench, enum dtype dtype) {
    return pack_tile_bytes(dtype, bench->plan.k) * (size_t)((bench->plan.n + GEMM_TILE_COLS - 1) / GEMM_TILE_COLS);
}

static size_t cold_bytes_of(const struct kernel_bench *bench) {
    size_t n_bytes = 4 * last_cache_bytes(), one = copy_bytes(bench, DTYPE_F32);
    if (n_bytes < MIN_COLD_BYTES) n_bytes = MIN_COLD_BYTES;
    if (n_bytes > MAX_COLD_BYTES) n_bytes = MAX_COLD_BYTES;
    return n_bytes > one ? n_bytes : one;
}

static enum status take_memory(struct kernel_bench *bench) {
    const int k = bench->plan.k, width = bench->plan.n > k ? bench->plan.n : k;
    bench->row_bytes = (size_t)KERNEL_BENCH_MAX_ROWS * (size_t)width * sizeof(float);
    bench->cold_bytes = cold_bytes_of(bench);
    bench->x = mem_map_pages(bench->row_bytes);
    bench->y = mem_map_pages(bench->row_bytes);
    bench->out = mem_map_pages(bench->row_bytes);
    bench->cold = mem_map_pages(bench->cold_bytes);
    bench->file_rows = mem_alloc_array(GEMM_TILE_COLS, (size_t)k * sizeof(float));
    bool has_all = bench->x && bench->y && bench->out && bench->cold && bench->file_rows;
    for (int form = ACT_INT8; form <= ACT_INT16; form++) {
        size_t n_bytes = act_q8_bytes((enum act_q8_form)form, KERNEL_BENCH_MAX_ROWS, k);
        bench->act_memory[form] = mem_map_pages(n_bytes);
        has_all &= bench->act_memory[form] != NULL;
        bench->acts[form] = act_q8_at(bench->act_memory[form], (enum act_q8_form)form, KERNEL_BENCH_MAX_ROWS, k);
    }
    return has_all ? STATUS_OK : STATUS_NOMEM;
}

enum status kernel_bench_open(struct kernel_bench **out_bench, const struct kernel_bench_plan *plan) {
    struct kernel_bench *bench = *out_bench = mem_alloc(sizeof *bench);
    REQUIRE(plan->k % ACT_Q8_BLOCK == 0 && plan->n_rounds >= 1);
    if (!bench) return STATUS_NOMEM;
    *bench = (struct kernel_bench){.plan = *plan, .dtype = DTYPE_N, .kv_dtype = DTYPE_N, .random = 1};
    enum status status = take_memory(bench);
    if (status) {
        kernel_bench_close(out_bench);
        return status;
    }
    const int n_values = KERNEL_BENCH_MAX_ROWS * plan->k;
    for (int i = 0; i < n_values; i++) put_value(bench, DTYPE_F32, (uint8_t *)(bench->x + i));
    plan->kernels->quantize_q8(bench->x, &bench->acts[ACT_INT8], KERNEL_BENCH_MAX_ROWS, plan->k);
    plan->kernels->quantize_q16(bench->x, &bench->acts[ACT_INT16], KERNEL_BENCH_MAX_ROWS, plan->k);
    return STATUS_OK;
}

void kernel_bench_close(struct kernel_bench **bench) {
    struct kernel_bench *old = *bench;
    if (!old) return;
    mem_unmap_pages(old->x, old->row_bytes);
    mem_unmap_pages(old->y, old->row_bytes);
    mem_unmap_pages(old->out, old->row_bytes);
    mem_unmap_pages(old->cold, old->cold_bytes);
    for (int form = ACT_INT8; form <= ACT_INT16; form++)
        mem_unmap_pages(old->act_memory[form],
                        act_q8_bytes((enum act_q8_form)form, KERNEL_BENCH_MAX_ROWS, old->plan.k));
    mem_free(old->file_rows);
    mem_free(old);
    *bench = NULL;
}

/* ---- time ---- */

/* copy_idx counts the calls: each reads the next copy. */
typedef void timed_fn(struct kernel_bench *bench, const void *job, int copy_idx);

/* Of a call, in the best round; false if a call is too slow to be repeated. */
static bool time_of(struct kernel_bench *bench, timed_fn *run, const void *job, double *out_ns) {
    int copy_idx = 0;
    int64_t start_ns = clock_now_ns(), took_ns;
    run(bench, job, copy_idx++);
    if (clock_now_ns() - start_ns > SLOW_NS) return false;
    *out_ns = INFINITY;
    for (int i = 0; i < bench->plan.n_rounds; i++) {
        int n_calls = 0;
        start_ns = clock_now_ns();
        do {
            run(bench, job, copy_idx++);
            n_calls++;
            took_ns = clock_now_ns() - start_ns;
        } while (took_ns < bench->plan.round_ns);
        *out_ns = fmin(*out_ns, (double)took_ns / n_calls);
    }
    return true;
}

/* ---- products ---- */

struct gemm_job {
    gemm_q8_fn *run_q8; /* one of the two */
    gemm_float_fn *run_float;
    struct kernel_bench *bench;
    const struct act_q8 *act;
    const uint8_t *weights; /* of this call's copy */
    size_t tile_bytes, n_copies;
    int n_rows, strip_cols;
};

static void gemm_task(void *arg, int task_idx, int worker_idx) {
    const struct gemm_job *job = arg;
    const struct kernel_bench_plan *plan = &job->bench->plan;
    const int col = task_idx * job->strip_cols;
    const int n_cols = plan->n - col < job->strip_cols ? plan->n - col : job->strip_cols;
    const uint8_t *tiles = job->weights + job->tile_bytes * (size_t)(col / GEMM_TILE_COLS);
    float *out = job->bench->out + col;
    (void)worker_idx;
    if (job->run_q8)
        job->run_q8(tiles, job->act, out, plan->n, job->n_rows, n_cols, plan->k);
    else
        job->run_float(tiles, job->bench->x, plan->k, out, plan->n, job->n_rows, n_cols, plan->k);
}

static void run_gemm(struct kernel_bench *bench, const void *arg, int copy_idx) {
    struct gemm_job job = *(const struct gemm_job *)arg;
    job.weights = bench->cold + copy_bytes(bench, bench->dtype) * ((size_t)copy_idx % job.n_copies);
    thread_pool_run(bench->plan.pool, gemm_task, &job, (bench->plan.n + job.strip_cols - 1) / job.strip_cols);
}

static int strip_cols_of(const struct kernel_bench_plan *plan) {
    int n_threads = thread_pool_n_threads(plan->pool), n_strips = n_threads * STRIPS_PER_THREAD;
    int cols = n_threads == 1 ? plan->n : (plan->n + n_strips - 1) / n_strips;
    return (cols + STRIP_MIN_COLS - 1) / STRIP_MIN_COLS * STRIP_MIN_COLS;
}

void kernel_bench_weights(struct kernel_bench *bench, enum dtype dtype) {
    const int k = bench->plan.k, n_blocks = k / dtype_block_elements(dtype) * GEMM_TILE_COLS;
    for (int i = 0; i < n_blocks; i++) put_block(bench, dtype, bench->file_rows + i * dtype_block_bytes(dtype));
    pack_tile(dtype, bench->file_rows, GEMM_TILE_COLS, 0, k, bench->cold);
    repeat(bench, pack_tile_bytes(dtype, k));
    bench->dtype = dtype;
    bench->kv_dtype = DTYPE_N;
}

bool kernel_bench_gemm(struct kernel_bench *bench, int n_rows, enum act_q8_form form,
                       struct kernel_bench_time *out_time) {
    const struct kernel_bench_plan *plan = &bench->plan;
    REQUIRE(bench->dtype < DTYPE_N && n_rows >= 1 && n_rows <= KERNEL_BENCH_MAX_ROWS);
    struct gemm_job job = {.run_q8 = kernel_table_gemm_q8(plan->kernels, bench->dtype),
                           .run_float = kernel_table_gemm_float(plan->kernels, bench->dtype),
                           .bench = bench,
                           .act = &bench->acts[form],
                           .tile_bytes = pack_tile_bytes(bench->dtype, plan->k),
                           .n_copies = bench->cold_bytes / copy_bytes(bench, bench->dtype),
                           .n_rows = n_rows,
                           .strip_cols = strip_cols_of(plan)};
    out_time->ops = 2.0 * n_rows * plan->n * plan->k;
    out_time->bytes = (double)copy_bytes(bench, bench->dtype);
    return time_of(bench, run_gemm, &job, &out_time->ns);
}

/* ---- attention ---- */

struct attention_job {
    attention_fold_fn *fold;
    int n_rows, n_keys, head_dim;
    size_t block_bytes; /* of K or V */
};

/* Which folds there are for a type of keys and values. */
static attention_fold_fn *fold_of(const struct kernel_table *kernels, enum dtype dtype, bool is_rows) {
    switch (dtype) {
    case DTYPE_F32: return is_rows ? kernels->attention_rows_f32 : kernels->attention_keys_f32;
    case DTYPE_F16: return is_rows ? kernels->attention_rows_f16 : kernels->attention_keys_f16;
    case DTYPE_I8: return is_rows ? kernels->attention_rows_i8 : kernels->attention_keys_i8;
    case DTYPE_Q8_0: return is_rows ? kernels->attention_rows_q8_0 : kernels->attention_keys_q8_0;
    default: return NULL;
    }
}

static void run_attention(struct kernel_bench *bench, const void *arg, int copy_idx) {
    const struct attention_job *job = arg;
    const struct kernel_table *kernels = bench->plan.kernels;
    const size_t n_blocks = (size_t)(job->n_keys / BLOCK_TOKENS), copy = 2 * job->block_bytes * n_blocks;
    const uint8_t *kv = bench->cold + copy * ((size_t)copy_idx % (bench->cold_bytes / copy));
    const void *k_blocks[PARTITION_BLOCKS], *v_blocks[PARTITION_BLOCKS];
    const float *q[ATTENTION_MAX_ROWS];
    int first_key[ATTENTION_MAX_ROWS] = {0}, last_key[ATTENTION_MAX_ROWS];
    float max[2][ATTENTION_MAX_ROWS], denom[2][ATTENTION_MAX_ROWS];
    _Alignas(64) float o[2][ATTENTION_MAX_ROWS * ATTENTION_MAX_HEAD_DIM];
    struct attention_state whole = {max[0], denom[0], o[0]}, part = {max[1], denom[1], o[1]};
    for (int i = 0; i < job->n_rows; i++) q[i] = bench->x + i * job->head_dim, last_key[i] = job->n_keys - 1;
    struct attention_rows rows = {job->n_rows, q, first_key, last_key};
    struct attention_keys keys = {k_blocks, v_blocks, BLOCK_TOKENS, job->head_dim};
    for (int begin = 0; begin < job->n_keys; begin += ATTENTION_PARTITION_KEYS) {
        for (int b = 0; b < PARTITION_BLOCKS; b++, kv += 2 * job->block_bytes)
            k_blocks[b] = kv, v_blocks[b] = kv + job->block_bytes;
        job->fold(&rows, &keys, begin, begin + ATTENTION_PARTITION_KEYS, begin ? &part : &whole);
        if (begin) kernels->attention_merge(&whole, &part, job->n_rows, job->head_dim);
    }
    for (int i = 0; i < job->n_rows; i++)
        kernels->attention_finish(whole.o + i * job->head_dim, whole.denom[i], bench->out + i * job->head_dim,
                                  job->head_dim);
}

bool kernel_bench_attention(struct kernel_bench *bench, enum dtype dtype, int head_dim, int n_rows, int n_keys,
                            struct kernel_bench_time *out_time) {
    struct attention_job job = {fold_of(bench->plan.kernels, dtype, n_rows > 1), n_rows, n_keys, head_dim,
                                BLOCK_TOKENS * kv_layout_vector_bytes(dtype, head_dim)};
    REQUIRE(job.fold && n_keys % ATTENTION_PARTITION_KEYS == 0 && n_keys <= KERNEL_BENCH_MAX_KEYS);
    REQUIRE(n_rows >= 1 && n_rows <= ATTENTION_MAX_ROWS && head_dim <= ATTENTION_MAX_HEAD_DIM);
    if (dtype == DTYPE_I8 || dtype == DTYPE_Q8_0)
        fill_kv_bytes(bench, dtype, head_dim); /* where its scales lie depends on the head */
    else if (bench->kv_dtype != dtype)
        fill_kv(bench, dtype);
    bench->dtype = DTYPE_N;
    bench->kv_dtype = dtype;
    out_time->ops = 4.0 * n_rows * n_keys * head_dim;
    out_time->bytes = 2.0 * n_keys * (double)kv_layout_vector_bytes(dtype, head_dim);
    return time_of(bench, run_attention, &job, &out_time->ns);
}

/* ---- rows of floats ---- */

struct row_job {
    int op_idx, n_rows;
};

/* Bytes read and written for each float of a row. */
struct row_op {
    const char *name;
    double bytes;
};

enum row_op_idx { QUANTIZE_Q8, QUANTIZE_Q16, RMS_NORM, GATE_SILU, GATE_GELU, ADD, ROPE_PAIRS, ROPE_HALVES, N_ROW_OPS };

static const struct row_op row_ops[N_ROW_OPS] = {
    [QUANTIZE_Q8] = {"quantize_q8", 5}, [QUANTIZE_Q16] = {"quantize_q16", 6}, [RMS_NORM] = {"rms_norm", 8},
    [GATE_SILU] = {"gate_silu", 12},    [GATE_GELU] = {"gate_gelu", 12},      [ADD] = {"add", 12},
    [ROPE_PAIRS] = {"rope_pairs", 8},   [ROPE_HALVES] = {"rope_halves", 8},
};

static void run_row_op(struct kernel_bench *bench, const void *arg, int copy_idx) {
    const struct row_job *job = arg;
    const struct kernel_table *kernels = bench->plan.kernels;
    const int k = bench->plan.k;
    (void)copy_idx;
    switch ((enum row_op_idx)job->op_idx) {
    case QUANTIZE_Q8: kernels->quantize_q8(bench->x, &bench->acts[ACT_INT8], job->n_rows, k); break;
    case QUANTIZE_Q16: kernels->quantize_q16(bench->x, &bench->acts[ACT_INT16], job->n_rows, k); break;
    case RMS_NORM: kernels->rms_norm(bench->x, bench->y, 1e-5f, bench->out, job->n_rows, k); break;
    case GATE_SILU: kernels->gate_silu(bench->out, bench->y, (int64_t)job->n_rows * k); break;
    case GATE_GELU: kernels->gate_gelu(bench->out, bench->y, (int64_t)job->n_rows * k); break;
    case ADD: kernels->add(bench->out, bench->y, (int64_t)job->n_rows * k); break;
    default: {
        rope_fn *rope = job->op_idx == ROPE_PAIRS ? kernels->rope_pairs : kernels->rope_halves;
        float angles[ROPE_HEAD_DIM]; /* turns that keep lengths */
        for (int i = 0; i < ROPE_HEAD_DIM; i++) angles[i] = i % 2 ? 0.8f : 0.6f;
        for (int row = 0; row < job->n_rows; row++)
            rope(bench->out + (size_t)row * (size_t)k, angles, k / ROPE_HEAD_DIM, ROPE_HEAD_DIM, ROPE_HEAD_DIM / 2);
    }
    }
}

bool kernel_bench_row_op(struct kernel_bench *bench, int op_idx, int n_rows, const char **out_name,
                         struct kernel_bench_time *out_time) {
    struct row_job job = {op_idx, n_rows};
    if (op_idx >= N_ROW_OPS) return false;
    /* What stays as it is however often an operation in place is applied: silu(20) * 1. */
    size_t n = (size_t)n_rows * (size_t)bench->plan.k;
    for (size_t i = 0; i < n; i++) bench->out[i] = 20.0f, bench->y[i] = 1.0f;
    *out_name = row_ops[op_idx].name;
    *out_time = (struct kernel_bench_time){.bytes = row_ops[op_idx].bytes * (double)n};
    if (!time_of(bench, run_row_op, &job, &out_time->ns)) out_time->ns = 0;
    return true;
}
