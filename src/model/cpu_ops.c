#include "model/cpu_ops.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "kernels/dequantize.h"
#include "kernels/pack.h"
#include "model/cpu_attention.h"
#include "model/cpu_matmul.h"

#define MAX_BUFFERS 32
#define ROWS_PER_TASK 16 /* of row-wise operations */
#define SMALL_WORK 8192  /* elements below which waking others costs more than it saves */

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
    struct cpu_matmul matmul;
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

static const float *tensor_read(struct layer_ops *ops, struct tensor_ref from) {
    return at(self(ops), from);
}

/* ---- row-wise operations: tasks of ROWS_PER_TASK rows ---- */

struct row_job {
    struct cpu_ops *cpu;
    void (*run)(const struct row_job *job, int row_begin, int n_rows);
    int n_rows, n_cols;
    float *x, *out;
    const struct weight *weight;
    const uint32_t *ids;
    const int32_t *numbers;
    const struct rope *rope;
    float factor;
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

/* ---- queries, keys, values ---- */

struct finish_tensor {
    float *x;
    const float *angles; /* NULL: not rotated */
    const struct weight *bias, *norm;
    float scale;
    int n_rows, n_cols, n_pairs;
};

struct finish_job {
    const struct kernel_table *kernels;
    rope_fn *turn;
    float eps;
    int head_dim, n_tensors;
    struct finish_tensor tensors[LAYER_OPS_MAX_MATMULS];
};

static void finish_row(const struct finish_job *job, const struct finish_tensor *tensor, int row) {
    const struct kernel_table *kernels = job->kernels;
    int n_cols = tensor->n_cols, n_heads = n_cols / job->head_dim, n_pairs = tensor->n_pairs;
    float *x = tensor->x + (size_t)row * (size_t)n_cols;
    if (tensor->bias->k) kernels->add(x, tensor->bias->packed, n_cols);
    if (tensor->norm->k) kernels->rms_norm(x, tensor->norm->packed, job->eps, x, n_heads, job->head_dim);
    if (tensor->angles)
        job->turn(x, tensor->angles + (size_t)row * 2 * (size_t)n_pairs, n_heads, job->head_dim, n_pairs);
    for (int i = 0; tensor->scale != 1 && i < n_cols; i++) x[i] *= tensor->scale;
}

static void finish_task(void *arg, int task_idx, int worker_idx) {
    const struct finish_job *job = arg;
    int begin = task_idx * ROWS_PER_TASK, end = begin + ROWS_PER_TASK;
    (void)worker_idx;
    for (int t = 0; t < job->n_tensors; t++)
        for (int row = begin; row < end && row < job->tensors[t].n_rows; row++) finish_row(job, &job->tensors[t], row);
}

static struct finish_tensor finish_tensor_of(struct cpu_ops *cpu, const struct heads_finish *from, int head_dim) {
    struct tensor_ref x = from->x, angles = from->angles;
    REQUIRE(x.n_cols % head_dim == 0 && angles.n_cols <= head_dim && (!angles.n_cols || angles.n_rows == x.n_rows));
    REQUIRE((!from->bias->k || from->bias->k == x.n_cols) && (!from->norm->k || from->norm->k == head_dim));
    return (struct finish_tensor){.x = at(cpu, x),
                                  .angles = angles.n_cols ? at(cpu, angles) : NULL,
                                  .bias = from->bias,
                                  .norm = from->norm,
                                  .scale = from->scale,
                                  .n_rows = x.n_rows,
                                  .n_cols = x.n_cols,
                                  .n_pairs = angles.n_cols / 2};
}

static void finish_heads(struct layer_ops *ops, int n_tensors, const struct heads_finish *tensors, float eps,
                         bool is_halves, int head_dim) {
    struct cpu_ops *cpu = self(ops);
    struct finish_job job = {.kernels = cpu->kernels,
                             .turn = is_halves ? cpu->kernels->rope_halves : cpu->kernels->rope_pairs,
                             .eps = eps,
                             .head_dim = head_dim,
                             .n_tensors = n_tensors};
    int64_t n_elements = 0;
    int n_rows = 0;
    REQUIRE(n_tensors <= LAYER_OPS_MAX_MATMULS);
    for (int t = 0; t < n_tensors; t++) {
        job.tensors[t] = finish_tensor_of(cpu, &tensors[t], head_dim);
        if (job.tensors[t].n_rows > n_rows) n_rows = job.tensors[t].n_rows;
        n_elements += (int64_t)job.tensors[t].n_rows * job.tensors[t].n_cols;
    }
    int n_tasks = (n_rows + ROWS_PER_TASK - 1) / ROWS_PER_TASK;
    if (n_elements < SMALL_WORK)
        for (int i = 0; i < n_tasks; i++) finish_task(&job, i, 0);
    else
        thread_pool_run(cpu->pool, finish_task, &job, n_tasks);
}

/* ---- matrix products ---- */

static struct cpu_matmul_input input_of(struct cpu_ops *cpu, const struct matmul_input *input) {
    struct tensor_ref x = input->x, add = input->add;
    REQUIRE(!add.n_cols || (add.n_cols == x.n_cols && add.n_rows == x.n_rows));
    return (struct cpu_matmul_input){.x = at(cpu, x),
                                     .add = add.n_cols ? at(cpu, add) : NULL,
                                     .add_norm = input->add_norm,
                                     .norm = input->norm,
                                     .eps = input->eps,
                                     .n_rows = x.n_rows,
                                     .k = x.n_cols};
}

static void read_input(struct layer_ops *ops, const struct matmul_input *input, struct tensor_ref out) {
    struct cpu_ops *cpu = self(ops);
    struct cpu_matmul_input own = input_of(cpu, input);
    REQUIRE(out.n_cols == own.k && out.n_rows == own.n_rows);
    cpu_matmul_read_input(&cpu->matmul, &own, at(cpu, out));
}

static void matmul(struct layer_ops *ops, const struct matmul_input *input, int n_weights,
                   const struct weight *const *weights, const struct tensor_ref *outs) {
    struct cpu_ops *cpu = self(ops);
    struct cpu_matmul_input own = input_of(cpu, input);
    float *own_outs[LAYER_OPS_MAX_MATMULS];
    REQUIRE(n_weights >= 1 && n_weights <= LAYER_OPS_MAX_MATMULS);
    for (int i = 0; i < n_weights; i++) {
        REQUIRE(outs[i].n_cols == weights[i]->n_out && outs[i].n_rows == own.n_rows);
        own_outs[i] = at(cpu, outs[i]);
    }
    cpu_matmul_run(&cpu->matmul, &own, n_weights, weights, own_outs);
}

static void matmul_gated(struct layer_ops *ops, const struct matmul_input *input, const struct weight *gate,
                         const struct weight *up, enum gate_kind kind, struct tensor_ref out) {
    struct cpu_ops *cpu = self(ops);
    struct cpu_matmul_input own = input_of(cpu, input);
    REQUIRE(out.n_cols == gate->n_out && out.n_rows == own.n_rows);
    cpu_matmul_run_gated(&cpu->matmul, &own, gate, up, kind, at(cpu, out));
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
                                    .tensor_read = tensor_read,
                                    .embed = embed,
                                    .read_input = read_input,
                                    .matmul = matmul,
                                    .matmul_gated = matmul_gated,
                                    .rope_angles = rope_angles,
                                    .finish_heads = finish_heads,
                                    .kv_store = kv_store,
                                    .attention = attention,
                                    .gather_rows = gather_rows},
                            .pool = pool,
                            .kernels = kernels,
                            .store = store};
    *out_ops = &cpu->ops;
    enum status status = cpu_matmul_init(&cpu->matmul, pool, kernels, max_rows, max_k);
    if (status) cpu_ops_destroy(out_ops);
    return status;
}

void cpu_ops_destroy(struct layer_ops **ops) {
    struct cpu_ops *cpu = self(*ops);
    if (!cpu) return;
    for (int i = 0; i < cpu->n_buffers; i++) mem_unmap_pages(cpu->buffers[i].bytes, cpu->buffers[i].n_bytes);
    cpu_matmul_deinit(&cpu->matmul);
    mem_free(cpu);
    *ops = NULL;
}
