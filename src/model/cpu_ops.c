#include "model/cpu_ops.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "kernels/dequantize.h"
#include "kernels/pack.h"
#include "model/cpu_attention.h"

#define MAX_BUFFERS 32
#define STRIP_MIN_COLS 32   /* two tiles: what the panel kernels work on */
#define STRIPS_PER_THREAD 6 /* enough to even out, few enough to claim cheaply */
#define ROWS_PER_TASK 16    /* of row-wise operations */
#define SMALL_WORK 8192     /* elements below which waking others costs more than it saves */

struct buffer {
    char *bytes;
    size_t n_bytes;
};

struct cpu_ops {
    struct layer_ops ops; /* first: the two pointers are one */
    struct thread_pool *pool;
    const struct kernel_table *kernels;
    struct group_store *store;
    struct buffer buffers[MAX_BUFFERS];
    int n_buffers;
    int max_rows, max_k;
    void *act_memory; /* of act_q8, for max_rows x max_k */
    size_t act_bytes;
};

static struct cpu_ops *self(struct layer_ops *ops) {
    return (struct cpu_ops *)ops;
}

static float *at(struct cpu_ops *cpu, struct tensor_ref tensor) {
    REQUIRE(tensor.buffer >= 0 && tensor.buffer < cpu->n_buffers);
    const struct buffer *buffer = &cpu->buffers[tensor.buffer];
    REQUIRE(tensor.off_bytes + (size_t)tensor.n_rows * (size_t)tensor.n_cols * sizeof(float) <= buffer->n_bytes);
    return (float *)(buffer->bytes + tensor.off_bytes);
}

static int buffer_create(struct layer_ops *ops, size_t n_bytes) {
    struct cpu_ops *cpu = self(ops);
    REQUIRE(cpu->n_buffers < MAX_BUFFERS);
    char *bytes = mem_map_pages(n_bytes);
    if (!bytes) return -1;
    cpu->buffers[cpu->n_buffers] = (struct buffer){bytes, n_bytes};
    return cpu->n_buffers++;
}

static void tensor_fetch(struct layer_ops *ops, struct tensor_ref from, float *to) {
    memcpy(to, at(self(ops), from), (size_t)from.n_rows * (size_t)from.n_cols * sizeof(float));
}

/* ---- row-wise operations: tasks of ROWS_PER_TASK rows ---- */

struct row_job {
    struct cpu_ops *cpu;
    void (*run)(const struct row_job *job, int row_begin, int n_rows);
    int n_rows, n_cols;
    float *x, *out;
    const float *y;
    const struct weight *weight;
    const uint32_t *ids;
    const int32_t *numbers;
    const struct rope *rope;
    int head_dim, n_pairs;
    float factor;
    struct act_q8 act;
    gate_fn *gate;
    rope_fn *turn;
};

static void row_task(void *arg, int task_idx, int worker_idx) {
    const struct row_job *job = arg;
    (void)worker_idx;
    int begin = task_idx * ROWS_PER_TASK, n = job->n_rows - begin;
    job->run(job, begin, n < ROWS_PER_TASK ? n : ROWS_PER_TASK);
}

static void run_rows(struct row_job *job) {
    int n_tasks = (job->n_rows + ROWS_PER_TASK - 1) / ROWS_PER_TASK;
    if ((int64_t)job->n_rows * job->n_cols < SMALL_WORK)
        for (int i = 0; i < n_tasks; i++) row_task(job, i, 0);
    else
        thread_pool_run(job->cpu->pool, row_task, job, n_tasks);
}

static void embed_rows(const struct row_job *job, int row_begin, int n_rows) {
    const struct weight *table = job->weight;
    size_t row_bytes =
        (size_t)(table->k / dtype_block_elements(table->dtype)) * (size_t)dtype_block_bytes(table->dtype);
    size_t tile_bytes = pack_tile_bytes(table->tile_dtype, table->k);
    for (int i = row_begin; i < row_begin + n_rows; i++) {
        float *out = job->out + (size_t)i * (size_t)job->n_cols;
        size_t id = job->ids[i];
        if (table->order == WEIGHT_ROWS)
            dequantize_row(table->dtype, (const char *)table->packed + id * row_bytes, out, table->k);
        else
            pack_column(table->tile_dtype, (const char *)table->packed + id / GEMM_TILE_COLS * tile_bytes,
                        (int)(id % GEMM_TILE_COLS), table->k, out);
        for (int c = 0; job->factor != 1 && c < job->n_cols; c++) out[c] *= job->factor;
    }
}

static void embed(struct layer_ops *ops, const struct weight *table, const uint32_t *ids, float scale,
                  struct tensor_ref out) {
    struct row_job job = {.cpu = self(ops),
                          .run = embed_rows,
                          .n_rows = out.n_rows,
                          .n_cols = out.n_cols,
                          .out = at(self(ops), out),
                          .weight = table,
                          .ids = ids,
                          .factor = scale};
    REQUIRE(out.n_cols == table->k);
    for (int i = 0; i < out.n_rows; i++) REQUIRE(ids[i] < (uint32_t)table->n_out);
    run_rows(&job);
}

static void norm_rows(const struct row_job *job, int row_begin, int n_rows) {
    int width = job->weight->k, n_pieces = n_rows * (job->n_cols / width);
    size_t off = (size_t)row_begin * (size_t)job->n_cols;
    job->cpu->kernels->rms_norm(job->x + off, job->weight->packed, job->factor, job->out + off, n_pieces, width);
}

static void rms_norm(struct layer_ops *ops, struct tensor_ref x, const struct weight *weight, float eps,
                     struct tensor_ref out) {
    struct row_job job = {.cpu = self(ops),
                          .run = norm_rows,
                          .n_rows = x.n_rows,
                          .n_cols = x.n_cols,
                          .x = at(self(ops), x),
                          .out = at(self(ops), out),
                          .weight = weight,
                          .factor = eps};
    REQUIRE(x.n_cols % weight->k == 0 && x.n_cols == out.n_cols && x.n_rows == out.n_rows);
    run_rows(&job);
}

static void bias_rows(const struct row_job *job, int row_begin, int n_rows) {
    for (int i = row_begin; i < row_begin + n_rows; i++)
        job->cpu->kernels->add(job->x + (size_t)i * (size_t)job->n_cols, job->weight->packed, job->n_cols);
}

static void add_bias(struct layer_ops *ops, struct tensor_ref x, const struct weight *bias) {
    struct row_job job = {.cpu = self(ops),
                          .run = bias_rows,
                          .n_rows = x.n_rows,
                          .n_cols = x.n_cols,
                          .x = at(self(ops), x),
                          .weight = bias};
    REQUIRE(x.n_cols == bias->k);
    run_rows(&job);
}

static void add_rows(const struct row_job *job, int row_begin, int n_rows) {
    size_t off = (size_t)row_begin * (size_t)job->n_cols;
    job->cpu->kernels->add(job->x + off, job->y + off, (int64_t)n_rows * job->n_cols);
}

static void add(struct layer_ops *ops, struct tensor_ref x, struct tensor_ref y) {
    struct row_job job = {.cpu = self(ops),
                          .run = add_rows,
                          .n_rows = x.n_rows,
                          .n_cols = x.n_cols,
                          .x = at(self(ops), x),
                          .y = at(self(ops), y)};
    REQUIRE(x.n_rows == y.n_rows && x.n_cols == y.n_cols);
    run_rows(&job);
}

static void scale_rows(const struct row_job *job, int row_begin, int n_rows) {
    float *x = job->x + (size_t)row_begin * (size_t)job->n_cols;
    for (int64_t i = 0; i < (int64_t)n_rows * job->n_cols; i++) x[i] *= job->factor;
}

static void scale(struct layer_ops *ops, struct tensor_ref x, float factor) {
    struct row_job job = {.cpu = self(ops),
                          .run = scale_rows,
                          .n_rows = x.n_rows,
                          .n_cols = x.n_cols,
                          .x = at(self(ops), x),
                          .factor = factor};
    run_rows(&job);
}

static void gate_rows(const struct row_job *job, int row_begin, int n_rows) {
    size_t off = (size_t)row_begin * (size_t)job->n_cols;
    job->gate(job->x + off, job->y + off, (int64_t)n_rows * job->n_cols);
}

static void gate(struct layer_ops *ops, enum gate_kind kind, struct tensor_ref gate_ref, struct tensor_ref up) {
    struct cpu_ops *cpu = self(ops);
    struct row_job job = {.cpu = cpu,
                          .run = gate_rows,
                          .n_rows = up.n_rows,
                          .n_cols = up.n_cols,
                          .x = at(cpu, gate_ref),
                          .y = at(cpu, up),
                          .gate = kind == GATE_SILU ? cpu->kernels->gate_silu : cpu->kernels->gate_gelu};
    REQUIRE(up.n_rows == gate_ref.n_rows && up.n_cols == gate_ref.n_cols);
    run_rows(&job);
}

static void gather_row_range(const struct row_job *job, int row_begin, int n_rows) {
    for (int i = row_begin; i < row_begin + n_rows; i++)
        memcpy(job->out + (size_t)i * (size_t)job->n_cols, job->x + (size_t)job->numbers[i] * (size_t)job->n_cols,
               (size_t)job->n_cols * sizeof(float));
}

static void gather_rows(struct layer_ops *ops, struct tensor_ref x, const int32_t *rows, struct tensor_ref out) {
    struct row_job job = {.cpu = self(ops),
                          .run = gather_row_range,
                          .n_rows = out.n_rows,
                          .n_cols = out.n_cols,
                          .x = at(self(ops), x),
                          .out = at(self(ops), out),
                          .numbers = rows};
    REQUIRE(x.n_cols == out.n_cols);
    for (int i = 0; i < out.n_rows; i++) REQUIRE(rows[i] >= 0 && rows[i] < x.n_rows);
    run_rows(&job);
}

static void angle_rows(const struct row_job *job, int row_begin, int n_rows) {
    const struct rope *rope = job->rope;
    for (int i = row_begin; i < row_begin + n_rows; i++) {
        float *angles = job->out + (size_t)i * (size_t)job->n_cols;
        for (int p = 0; p < rope->n_pairs; p++) {
            double angle = job->numbers[i] * rope->inv_freq[p];
            angles[2 * p] = (float)(cos(angle) * rope->magnitude);
            angles[2 * p + 1] = (float)(sin(angle) * rope->magnitude);
        }
    }
}

static void rope_angles(struct layer_ops *ops, const struct rope *rope, const int32_t *positions,
                        struct tensor_ref out) {
    struct row_job job = {.cpu = self(ops),
                          .run = angle_rows,
                          .n_rows = out.n_rows,
                          .n_cols = out.n_cols,
                          .out = at(self(ops), out),
                          .numbers = positions,
                          .rope = rope};
    REQUIRE(out.n_cols == 2 * rope->n_pairs);
    run_rows(&job);
}

static void turn_rows(const struct row_job *job, int row_begin, int n_rows) {
    for (int i = row_begin; i < row_begin + n_rows; i++)
        job->turn(job->x + (size_t)i * (size_t)job->n_cols, job->y + (size_t)i * 2 * (size_t)job->n_pairs,
                  job->n_cols / job->head_dim, job->head_dim, job->n_pairs);
}

static void rope(struct layer_ops *ops, struct tensor_ref x, struct tensor_ref angles, bool is_halves, int head_dim) {
    struct cpu_ops *cpu = self(ops);
    struct row_job job = {.cpu = cpu,
                          .run = turn_rows,
                          .n_rows = x.n_rows,
                          .n_cols = x.n_cols,
                          .x = at(cpu, x),
                          .y = at(cpu, angles),
                          .head_dim = head_dim,
                          .n_pairs = angles.n_cols / 2,
                          .turn = is_halves ? cpu->kernels->rope_halves : cpu->kernels->rope_pairs};
    REQUIRE(x.n_rows == angles.n_rows && x.n_cols % head_dim == 0 && angles.n_cols <= head_dim);
    run_rows(&job);
}

/* ---- matrix products: tasks of a strip of columns, all rows ---- */

struct product {
    const struct weight *weight;
    float *out;
    int n_out;      /* columns of out */
    int strip_cols; /* a multiple of GEMM_TILE_COLS */
    int n_strips;
    gemm_q8_fn *run_q8; /* one of the two */
    gemm_float_fn *run_float;
};

struct matmul_job {
    const float *x;
    struct act_q8 act;
    int n_rows, k, n_products;
    struct product products[LAYER_OPS_MAX_MATMULS];
};

static void matmul_task(void *arg, int task_idx, int worker_idx) {
    const struct matmul_job *job = arg;
    const struct product *product = job->products;
    (void)worker_idx;
    while (task_idx >= product->n_strips) task_idx -= product++->n_strips;
    int col = task_idx * product->strip_cols, n_cols = product->n_out - col;
    if (n_cols > product->strip_cols) n_cols = product->strip_cols;
    const char *tiles = (const char *)product->weight->packed +
                        pack_tile_bytes(product->weight->tile_dtype, job->k) * (size_t)(col / GEMM_TILE_COLS);
    if (product->run_q8)
        product->run_q8(tiles, &job->act, product->out + col, product->n_out, job->n_rows, n_cols, job->k);
    else
        product->run_float(tiles, job->x, job->k, product->out + col, product->n_out, job->n_rows, n_cols, job->k);
}

static void quantize_rows(const struct row_job *job, int row_begin, int n_rows) {
    struct act_q8 act = act_q8_from_row(job->act, row_begin, job->n_cols);
    const struct kernel_table *kernels = job->cpu->kernels;
    quantize_q8_fn *quantize = act.q_low ? kernels->quantize_q16 : kernels->quantize_q8;
    quantize(job->x + (size_t)row_begin * (size_t)job->n_cols, &act, n_rows, job->n_cols);
}

static int strip_cols_of(const struct cpu_ops *cpu, int n_cols_in_all) {
    int n_strips = thread_pool_n_threads(cpu->pool) * STRIPS_PER_THREAD;
    int cols = (n_cols_in_all + n_strips - 1) / n_strips;
    return (cols + STRIP_MIN_COLS - 1) / STRIP_MIN_COLS * STRIP_MIN_COLS;
}

static void matmul(struct layer_ops *ops, struct tensor_ref x, int n_weights, const struct weight *const *weights,
                   const struct tensor_ref *outs) {
    struct cpu_ops *cpu = self(ops);
    struct matmul_job job = {.x = at(cpu, x), .n_rows = x.n_rows, .k = x.n_cols, .n_products = n_weights};
    REQUIRE(n_weights >= 1 && n_weights <= LAYER_OPS_MAX_MATMULS && x.n_rows <= cpu->max_rows &&
            x.n_cols <= cpu->max_k);
    bool needs_q8 = false;
    int n_cols_in_all = 0, n_tasks = 0;
    for (int i = 0; i < n_weights; i++) n_cols_in_all += weights[i]->n_out;
    for (int i = 0; i < n_weights; i++) {
        struct product *product = &job.products[i];
        REQUIRE(weights[i]->k == x.n_cols && outs[i].n_cols == weights[i]->n_out && outs[i].n_rows == x.n_rows);
        *product = (struct product){.weight = weights[i],
                                    .out = at(cpu, outs[i]),
                                    .n_out = weights[i]->n_out,
                                    .strip_cols = strip_cols_of(cpu, n_cols_in_all),
                                    .run_q8 = kernel_table_gemm_q8(cpu->kernels, weights[i]->tile_dtype),
                                    .run_float = kernel_table_gemm_float(cpu->kernels, weights[i]->tile_dtype)};
        REQUIRE(product->run_q8 || product->run_float);
        REQUIRE(weights[i]->act_form == weights[0]->act_form);
        product->n_strips = (product->n_out + product->strip_cols - 1) / product->strip_cols;
        n_tasks += product->n_strips;
        needs_q8 |= product->run_q8 != NULL;
    }
    if (needs_q8) {
        enum act_q8_form form = weights[0]->act_form;
        job.act = act_q8_at(cpu->act_memory, form, x.n_rows, x.n_cols);
        struct row_job rows = {
            .cpu = cpu, .run = quantize_rows, .n_rows = x.n_rows, .n_cols = x.n_cols, .x = at(cpu, x), .act = job.act};
        run_rows(&rows);
    }
    thread_pool_run(cpu->pool, matmul_task, &job, n_tasks);
}

/* ---- KV ---- */

static void kv_store(struct layer_ops *ops, struct tensor_ref k, struct tensor_ref v, const struct model_batch *batch,
                     int layer) {
    struct cpu_ops *cpu = self(ops);
    cpu_attention_store(cpu->pool, cpu->kernels, group_store_of(cpu->store, layer), at(cpu, k), at(cpu, v), batch,
                        cpu->store->layers.group_of[layer], group_store_place(cpu->store, layer));
}

static void attention(struct layer_ops *ops, struct tensor_ref q, const struct model_batch *batch, int layer,
                      int window, struct tensor_ref out) {
    struct cpu_ops *cpu = self(ops);
    REQUIRE(q.n_rows == batch->n_rows && out.n_rows == q.n_rows && out.n_cols == q.n_cols);
    const struct block_store *store = group_store_of(cpu->store, layer);
    cpu_attention_run(cpu->pool, cpu->kernels, store, at(cpu, q), q.n_cols / store->layout.head_dim, batch,
                      cpu->store->layers.group_of[layer], group_store_place(cpu->store, layer), window, at(cpu, out),
                      &ops->counts);
}

enum status cpu_ops_create(struct layer_ops **out_ops, struct thread_pool *pool, const struct kernel_table *kernels,
                           struct group_store *store, int max_rows, int max_k) {
    struct cpu_ops *cpu = mem_alloc(sizeof *cpu);
    *out_ops = NULL;
    if (!cpu) return STATUS_NOMEM;
    *cpu = (struct cpu_ops){.ops = {.buffer_create = buffer_create,
                                    .tensor_fetch = tensor_fetch,
                                    .embed = embed,
                                    .rms_norm = rms_norm,
                                    .matmul = matmul,
                                    .add_bias = add_bias,
                                    .add = add,
                                    .scale = scale,
                                    .rope_angles = rope_angles,
                                    .rope = rope,
                                    .kv_store = kv_store,
                                    .attention = attention,
                                    .gate = gate,
                                    .gather_rows = gather_rows},
                            .pool = pool,
                            .kernels = kernels,
                            .store = store,
                            .max_rows = max_rows,
                            .max_k = max_k};
    cpu->act_bytes = act_q8_bytes(ACT_INT16, max_rows, (max_k + ACT_Q8_BLOCK - 1) / ACT_Q8_BLOCK * ACT_Q8_BLOCK);
    cpu->act_memory = mem_map_pages(cpu->act_bytes);
    *out_ops = &cpu->ops;
    if (cpu->act_memory) return STATUS_OK;
    cpu_ops_destroy(out_ops);
    return STATUS_NOMEM;
}

void cpu_ops_destroy(struct layer_ops **ops) {
    struct cpu_ops *cpu = self(*ops);
    if (!cpu) return;
    for (int i = 0; i < cpu->n_buffers; i++) mem_unmap_pages(cpu->buffers[i].bytes, cpu->buffers[i].n_bytes);
    mem_unmap_pages(cpu->act_memory, cpu->act_bytes);
    mem_free(cpu);
    *ops = NULL;
}
