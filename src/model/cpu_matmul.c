#include "model/cpu_matmul.h"

#include "base/mem.h"
#include "kernels/pack.h"

#define STRIP_MIN_COLS 32      /* two tiles: what the panel kernels work on */
#define STRIPS_PER_THREAD 6    /* at least; enough to even out, few enough to claim cheaply */
#define STRIP_MIN_MACS 8000000 /* smaller strips than this are not worth a claim where there are many */
#define INPUT_ROWS_PER_TASK 16 /* of the pass over the input */
#define INPUT_ROWS_AT_ONCE 8   /* of them in the first-level cache: added, normed and quantized before the next */
#define INPUT_SMALL_WORK 8192  /* elements below which waking others costs more than it saves */
#define GATED_ROWS 512         /* rows of a strip of `up` at a time */
#define GATED_FLOATS (GATED_ROWS * 128) /* of it in all: it stays in the second-level cache */

enum status cpu_matmul_init(struct cpu_matmul *matmul, struct thread_pool *pool, const struct kernel_table *kernels,
                            int max_rows, int max_k) {
    int padded_k = (max_k + ACT_Q8_BLOCK - 1) / ACT_Q8_BLOCK * ACT_Q8_BLOCK;
    size_t row_floats = INPUT_ROWS_AT_ONCE * (size_t)padded_k;
    *matmul = (struct cpu_matmul){.pool = pool,
                                  .kernels = kernels,
                                  .max_rows = max_rows,
                                  .max_k = max_k,
                                  .act_bytes = act_q8_bytes(ACT_INT16, max_rows, padded_k),
                                  .normed_bytes = (size_t)max_rows * (size_t)max_k * sizeof(float),
                                  .scratch_floats = row_floats > GATED_FLOATS ? row_floats : GATED_FLOATS};
    size_t n_threads = (size_t)thread_pool_n_threads(pool);
    matmul->act_memory = mem_map_pages(matmul->act_bytes);
    matmul->normed = mem_map_pages(matmul->normed_bytes);
    matmul->scratch = mem_map_pages(n_threads * matmul->scratch_floats * sizeof(float));
    return matmul->act_memory && matmul->normed && matmul->scratch ? STATUS_OK : STATUS_NOMEM;
}

void cpu_matmul_deinit(struct cpu_matmul *matmul) {
    mem_unmap_pages(matmul->act_memory, matmul->act_bytes);
    mem_unmap_pages(matmul->normed, matmul->normed_bytes);
    if (matmul->scratch)
        mem_unmap_pages(matmul->scratch,
                        (size_t)thread_pool_n_threads(matmul->pool) * matmul->scratch_floats * sizeof(float));
    *matmul = (struct cpu_matmul){0};
}

/* ---- the input ---- */

struct product {
    const struct weight *weight;
    gemm_q8_fn *run_q8; /* one of the two */
    gemm_float_fn *run_float;
    float *out;
    int n_strips;
};

struct matmul_job {
    struct cpu_matmul *matmul;
    const struct cpu_matmul_input *input;
    const float *x;    /* what products with float weights read: the input, or its norm */
    float *normed;     /* where the norm goes; NULL: only scratch, no product reads it as floats */
    struct act_q8 act; /* q NULL: no product reads it */
    int strip_cols;    /* a multiple of GEMM_TILE_COLS */
    int n_products;
    struct product products[LAYER_OPS_MAX_MATMULS];
    gate_fn *gate;
};

static void input_rows(const struct matmul_job *job, int row_begin, int n_rows, float *scratch) {
    const struct cpu_matmul_input *input = job->input;
    const struct kernel_table *kernels = job->matmul->kernels;
    size_t off = (size_t)row_begin * (size_t)input->k;
    float *x = input->x + off;
    if (input->add) {
        float *add = input->add + off;
        if (input->add_norm) kernels->rms_norm(add, input->add_norm->packed, input->eps, add, n_rows, input->k);
        kernels->add(x, add, (int64_t)n_rows * input->k);
    }
    if (input->norm) {
        float *normed = job->normed ? job->normed + off : scratch;
        kernels->rms_norm(x, input->norm->packed, input->eps, normed, n_rows, input->k);
        x = normed;
    }
    if (!job->act.q) return;
    struct act_q8 act = act_q8_from_row(job->act, row_begin, input->k);
    (act.q_low ? kernels->quantize_q16 : kernels->quantize_q8)(x, &act, n_rows, input->k);
}

static void input_task(void *arg, int task_idx, int worker_idx) {
    const struct matmul_job *job = arg;
    float *scratch = job->matmul->scratch + (size_t)worker_idx * job->matmul->scratch_floats;
    int begin = task_idx * INPUT_ROWS_PER_TASK, end = begin + INPUT_ROWS_PER_TASK;
    if (end > job->input->n_rows) end = job->input->n_rows;
    for (; begin < end; begin += INPUT_ROWS_AT_ONCE)
        input_rows(job, begin, end - begin < INPUT_ROWS_AT_ONCE ? end - begin : INPUT_ROWS_AT_ONCE, scratch);
}

static void run_input_pass(struct matmul_job *job) {
    const struct cpu_matmul_input *input = job->input;
    int n_tasks = (input->n_rows + INPUT_ROWS_PER_TASK - 1) / INPUT_ROWS_PER_TASK;
    if ((int64_t)input->n_rows * input->k < INPUT_SMALL_WORK)
        for (int i = 0; i < n_tasks; i++) input_task(job, i, 0);
    else
        thread_pool_run(job->matmul->pool, input_task, job, n_tasks);
}

static void prepare_input(struct matmul_job *job) {
    const struct cpu_matmul_input *input = job->input;
    bool needs_q8 = false, needs_floats = false;
    for (int i = 0; i < job->n_products; i++) {
        needs_q8 |= job->products[i].run_q8 != NULL;
        needs_floats |= job->products[i].run_float != NULL;
        REQUIRE(job->products[i].weight->act_form == job->products[0].weight->act_form);
    }
    if (needs_q8)
        job->act = act_q8_at(job->matmul->act_memory, job->products[0].weight->act_form, input->n_rows, input->k);
    if (input->norm && needs_floats) job->normed = job->matmul->normed;
    job->x = job->normed ? job->normed : input->x;
    if (!needs_q8 && !input->add && !input->norm) return;
    run_input_pass(job);
}

/* ---- the products ---- */

/* Rows row_begin.. of one product's columns col.., into out: row i of them at out + i * out_stride. */
static void run_product(const struct matmul_job *job, const struct product *product, int row_begin, int n_rows, int col,
                        int n_cols, float *out, int out_stride) {
    int k = job->input->k;
    const char *tiles = (const char *)product->weight->packed +
                        pack_tile_bytes(product->weight->tile_dtype, k) * (size_t)(col / GEMM_TILE_COLS);
    if (product->run_q8) {
        struct act_q8 act = act_q8_from_row(job->act, row_begin, k);
        product->run_q8(tiles, &act, out, out_stride, n_rows, n_cols, k);
    } else {
        product->run_float(tiles, job->x + (size_t)row_begin * (size_t)k, k, out, out_stride, n_rows, n_cols, k);
    }
}

static int cols_of_strip(const struct matmul_job *job, const struct product *product, int strip_idx) {
    int n_left = product->weight->n_out - strip_idx * job->strip_cols;
    return n_left < job->strip_cols ? n_left : job->strip_cols;
}

static void product_task(void *arg, int task_idx, int worker_idx) {
    const struct matmul_job *job = arg;
    const struct product *product = job->products;
    (void)worker_idx;
    while (task_idx >= product->n_strips) task_idx -= product++->n_strips;
    int col = task_idx * job->strip_cols;
    run_product(job, product, 0, job->input->n_rows, col, cols_of_strip(job, product, task_idx), product->out + col,
                product->weight->n_out);
}

/* The strip of gate goes to out, that of up to scratch, and both meet before the next rows. */
static void gated_task(void *arg, int strip_idx, int worker_idx) {
    const struct matmul_job *job = arg;
    const struct product *gate = &job->products[0], *up = &job->products[1];
    float *scratch = job->matmul->scratch + (size_t)worker_idx * job->matmul->scratch_floats;
    int col = strip_idx * job->strip_cols, n_cols = cols_of_strip(job, gate, strip_idx), n_out = gate->weight->n_out;
    for (int begin = 0; begin < job->input->n_rows; begin += GATED_ROWS) {
        int n_rows = job->input->n_rows - begin < GATED_ROWS ? job->input->n_rows - begin : GATED_ROWS;
        float *out = gate->out + (size_t)begin * (size_t)n_out + col;
        run_product(job, gate, begin, n_rows, col, n_cols, out, n_out);
        run_product(job, up, begin, n_rows, col, n_cols, scratch, n_cols);
        for (int i = 0; i < n_rows; i++)
            job->gate(out + (size_t)i * (size_t)n_out, scratch + (size_t)i * (size_t)n_cols, n_cols);
    }
}

/* Narrow strips even out best and cost nothing, as long as there is enough to do in each. */
static int strip_cols_of(const struct matmul_job *job, int n_cols_in_all) {
    int n_strips = thread_pool_limit_now(job->matmul->pool) * STRIPS_PER_THREAD;
    int64_t cols = (n_cols_in_all + n_strips - 1) / n_strips;
    int64_t worthwhile = STRIP_MIN_MACS / ((int64_t)job->input->n_rows * job->input->k) + 1;
    if (cols > worthwhile) cols = worthwhile;
    return (int)((cols + STRIP_MIN_COLS - 1) / STRIP_MIN_COLS * STRIP_MIN_COLS);
}

static void add_product(struct matmul_job *job, const struct weight *weight, float *out) {
    REQUIRE(job->n_products < LAYER_OPS_MAX_MATMULS && weight->k == job->input->k);
    struct product product = {.weight = weight,
                              .run_q8 = kernel_table_gemm_q8(job->matmul->kernels, weight->tile_dtype),
                              .run_float = kernel_table_gemm_float(job->matmul->kernels, weight->tile_dtype),
                              .out = out};
    REQUIRE((product.run_q8 != NULL) != (product.run_float != NULL));
    job->products[job->n_products++] = product;
}

static struct matmul_job begin_job(struct cpu_matmul *matmul, const struct cpu_matmul_input *input) {
    REQUIRE(input->n_rows >= 1 && input->n_rows <= matmul->max_rows && input->k <= matmul->max_k);
    REQUIRE(!input->norm || input->norm->k == input->k);
    REQUIRE(!input->add_norm || (input->add && input->add_norm->k == input->k));
    return (struct matmul_job){.matmul = matmul, .input = input};
}

void cpu_matmul_read_input(struct cpu_matmul *matmul, const struct cpu_matmul_input *input, float *out) {
    struct matmul_job job = begin_job(matmul, input);
    REQUIRE(input->norm);
    job.normed = out;
    run_input_pass(&job);
}

void cpu_matmul_run(struct cpu_matmul *matmul, const struct cpu_matmul_input *input, int n_weights,
                    const struct weight *const *weights, float *const *outs) {
    struct matmul_job job = begin_job(matmul, input);
    int n_cols = 0, n_tasks = 0;
    for (int i = 0; i < n_weights; i++) {
        add_product(&job, weights[i], outs[i]);
        n_cols += weights[i]->n_out;
    }
    prepare_input(&job);
    job.strip_cols = strip_cols_of(&job, n_cols);
    for (int i = 0; i < n_weights; i++) {
        job.products[i].n_strips = (weights[i]->n_out + job.strip_cols - 1) / job.strip_cols;
        n_tasks += job.products[i].n_strips;
    }
    thread_pool_run(matmul->pool, product_task, &job, n_tasks);
}

void cpu_matmul_run_gated(struct cpu_matmul *matmul, const struct cpu_matmul_input *input, const struct weight *gate,
                          const struct weight *up, enum gate_kind kind, float *out) {
    struct matmul_job job = begin_job(matmul, input);
    REQUIRE(gate->n_out == up->n_out);
    job.gate = kind == GATE_SILU ? matmul->kernels->gate_silu : matmul->kernels->gate_gelu;
    add_product(&job, gate, out);
    add_product(&job, up, NULL);
    prepare_input(&job);
    int rows_at_once = input->n_rows < GATED_ROWS ? input->n_rows : GATED_ROWS;
    int max_cols = GATED_FLOATS / rows_at_once / STRIP_MIN_COLS * STRIP_MIN_COLS;
    job.strip_cols = strip_cols_of(&job, gate->n_out);
    if (job.strip_cols > max_cols) job.strip_cols = max_cols;
    thread_pool_run(matmul->pool, gated_task, &job, (gate->n_out + job.strip_cols - 1) / job.strip_cols);
}
