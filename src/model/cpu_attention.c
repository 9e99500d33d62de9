#include "model/cpu_attention.h"

#include <stdatomic.h>

/* Fewer query rows than this in a call go with keys in lanes: half-empty row lanes cost as much as full ones. */
#define MIN_ROWS_IN_LANES 6
#define MIN_ROWS_IN_LANES_I8 14 /* its keys in lanes cost what rows do at 14 of 16 lanes */
#define MAX_PARTITION_BLOCKS (ATTENTION_PARTITION_KEYS / 16)

/* ---- store ---- */

struct store_job {
    const struct kernel_table *kernels;
    struct block_store *store;
    const float *k, *v;
    const struct model_batch *batch;
    int kv_group, layer;
};

static kv_store_fn *store_kernel(const struct kernel_table *kernels, enum dtype dtype) {
    switch (dtype) {
    case DTYPE_F16: return kernels->kv_store_f16;
    case DTYPE_I8: return kernels->kv_store_i8;
    case DTYPE_Q8_0: return kernels->kv_store_q8_0;
    default: return kernels->kv_store_f32;
    }
}

/* Types of bytes: q, K and V pass the Hadamard transform before they are rounded. */
static bool is_rotated(enum dtype dtype) {
    return dtype == DTYPE_I8 || dtype == DTYPE_Q8_0;
}

static void store_task(void *arg, int row, int worker_idx) {
    const struct store_job *job = arg;
    const struct kv_layout *layout = &job->store->layout;
    (void)worker_idx;
    kv_store_fn *put = store_kernel(job->kernels, layout->dtype);
    uint32_t slot = job->batch->slots[job->kv_group][row], block = slot / (uint32_t)layout->block_tokens;
    for (int head = 0; head < layout->n_kv_heads; head++) {
        size_t off = ((size_t)row * (size_t)layout->n_kv_heads + (size_t)head) * (size_t)layout->head_dim;
        const float *k = job->k + off, *v = job->v + off;
        _Alignas(64) float rotated[2][ATTENTION_MAX_HEAD_DIM];
        if (is_rotated(layout->dtype)) {
            job->kernels->hadamard(k, rotated[0], 1, layout->head_dim);
            job->kernels->hadamard(v, rotated[1], 1, layout->head_dim);
            k = rotated[0], v = rotated[1];
        }
        put(k, v, block_store_k(job->store, job->layer, block, head),
            block_store_v(job->store, job->layer, block, head), (int)(slot % (uint32_t)layout->block_tokens),
            layout->block_tokens, layout->head_dim);
    }
}

void cpu_attention_store(struct thread_pool *pool, const struct kernel_table *kernels, struct block_store *store,
                         const float *k, const float *v, const struct model_batch *batch, int group, int layer) {
    struct store_job job = {kernels, store, k, v, batch, group, layer};
    if (batch->n_rows < 8)
        for (int row = 0; row < batch->n_rows; row++) store_task(&job, row, 0);
    else
        thread_pool_run(pool, store_task, &job, batch->n_rows);
}

/* ---- attend ---- */

struct attend_job {
    const struct kernel_table *kernels;
    const struct block_store *store;
    const float *q;
    float *out;
    int n_heads, group; /* group: query heads per kv head */
    const struct model_batch *batch;
    int kv_group, layer, window;
    atomic_llong n_rows_calls, n_keys_calls; /* relaxed: counts only */
};

/* One sequence's rows of one kv head, at most ATTENTION_MAX_ROWS query rows from query_begin on. */
struct piece {
    const struct batch_sequence *sequence;
    int kv_head, query_begin, n_queries;
};

static int n_pieces_of(const struct attend_job *job, const struct batch_sequence *sequence) {
    return (sequence->n_rows * job->group + ATTENTION_MAX_ROWS - 1) / ATTENTION_MAX_ROWS;
}

static struct piece find_piece(const struct attend_job *job, int task_idx) {
    int n_kv_heads = job->store->layout.n_kv_heads;
    const struct batch_sequence *sequence = job->batch->sequences;
    while (task_idx >= n_pieces_of(job, sequence) * n_kv_heads) task_idx -= n_pieces_of(job, sequence++) * n_kv_heads;
    struct piece piece = {.sequence = sequence, .kv_head = task_idx % n_kv_heads};
    /* Late rows see most keys: the longest pieces are claimed first. */
    piece.query_begin = (n_pieces_of(job, sequence) - 1 - task_idx / n_kv_heads) * ATTENTION_MAX_ROWS;
    int n_left = sequence->n_rows * job->group - piece.query_begin;
    piece.n_queries = n_left < ATTENTION_MAX_ROWS ? n_left : ATTENTION_MAX_ROWS;
    return piece;
}

/* K and V lie rotated in a cache of bytes, unscaled: q . k and the output come piece times too large. */
static float unrotate_factor(int head_dim) {
    return 1.0f / (float)hadamard_piece(head_dim);
}

/* Rows of the piece: token-major, the heads of the group inside a token. */
struct piece_rows {
    const float *q[ATTENTION_MAX_ROWS];
    _Alignas(64) float rotated_q[ATTENTION_MAX_ROWS][ATTENTION_MAX_HEAD_DIM]; /* int8 and q8_0 only */
    size_t out_off[ATTENTION_MAX_ROWS];
    int first_key[ATTENTION_MAX_ROWS], last_key[ATTENTION_MAX_ROWS];
    struct attention_rows rows;
};

static void lay_out_rows(const struct attend_job *job, const struct piece *piece, struct piece_rows *out) {
    int head_dim = job->store->layout.head_dim;
    bool has_bytes = is_rotated(job->store->layout.dtype);
    for (int i = 0; i < piece->n_queries; i++) {
        int query = piece->query_begin + i, token = query / job->group;
        int head = piece->kv_head * job->group + query % job->group;
        int pos = piece->sequence->first_pos + token;
        size_t row = (size_t)(piece->sequence->row_begin + token);
        out->out_off[i] = (row * (size_t)job->n_heads + (size_t)head) * (size_t)head_dim;
        out->q[i] = job->q + out->out_off[i];
        if (has_bytes) {
            job->kernels->hadamard(out->q[i], out->rotated_q[i], unrotate_factor(head_dim), head_dim);
            out->q[i] = out->rotated_q[i];
        }
        out->last_key[i] = pos;
        out->first_key[i] = job->window > 0 && pos >= job->window ? pos - job->window + 1 : 0;
    }
    out->rows = (struct attention_rows){piece->n_queries, out->q, out->first_key, out->last_key};
}

static attention_fold_fn *fold_kernel(const struct kernel_table *kernels, enum dtype dtype, bool has_row_lanes) {
    switch (dtype) {
    case DTYPE_F16: return has_row_lanes ? kernels->attention_rows_f16 : kernels->attention_keys_f16;
    case DTYPE_I8: return has_row_lanes ? kernels->attention_rows_i8 : kernels->attention_keys_i8;
    case DTYPE_Q8_0: return has_row_lanes ? kernels->attention_rows_q8_0 : kernels->attention_keys_q8_0;
    default: return has_row_lanes ? kernels->attention_rows_f32 : kernels->attention_keys_f32;
    }
}

/* Folds one partition, or the part of it from key_begin on, into part. */
static void fold_partition(struct attend_job *job, const struct piece *piece, const struct piece_rows *rows,
                           int key_begin, int key_end, struct attention_state *part) {
    const struct kv_layout *layout = &job->store->layout;
    const void *k_blocks[MAX_PARTITION_BLOCKS], *v_blocks[MAX_PARTITION_BLOCKS];
    int block_begin = key_begin / layout->block_tokens;
    for (int b = block_begin; b * layout->block_tokens < key_end; b++) {
        uint32_t block = piece->sequence->blocks[job->kv_group][b];
        k_blocks[b - block_begin] = block_store_k(job->store, job->layer, block, piece->kv_head);
        v_blocks[b - block_begin] = block_store_v(job->store, job->layer, block, piece->kv_head);
    }
    struct attention_keys keys = {k_blocks, v_blocks, layout->block_tokens, layout->head_dim};
    int min_rows = is_rotated(layout->dtype) ? MIN_ROWS_IN_LANES_I8 : MIN_ROWS_IN_LANES;
    bool has_row_lanes = piece->n_queries >= min_rows;
    atomic_fetch_add_explicit(has_row_lanes ? &job->n_rows_calls : &job->n_keys_calls, 1, memory_order_relaxed);
    fold_kernel(job->kernels, layout->dtype, has_row_lanes)(&rows->rows, &keys, key_begin, key_end, part);
}

static void attend_task(void *arg, int task_idx, int worker_idx) {
    struct attend_job *job = arg;
    (void)worker_idx;
    struct piece piece = find_piece(job, task_idx);
    struct piece_rows rows;
    lay_out_rows(job, &piece, &rows);
    int head_dim = job->store->layout.head_dim, n = piece.n_queries;
    /* Rows are in order of position: the first sees the earliest key, the last the latest. */
    int first_key = rows.first_key[0], last_key = rows.last_key[n - 1];
    float max[2][ATTENTION_MAX_ROWS], denom[2][ATTENTION_MAX_ROWS];
    _Alignas(64) float o[2][ATTENTION_MAX_ROWS * ATTENTION_MAX_HEAD_DIM];
    struct attention_state whole = {max[0], denom[0], o[0]}, part = {max[1], denom[1], o[1]};
    int begin = first_key / ATTENTION_TILE_KEYS * ATTENTION_TILE_KEYS;
    for (bool is_first = true; begin <= last_key; is_first = false) {
        int end = (begin / ATTENTION_PARTITION_KEYS + 1) * ATTENTION_PARTITION_KEYS;
        if (end > last_key + 1) end = last_key + 1;
        /* Merging into an empty state gives the part itself, so the first needs no merge. */
        fold_partition(job, &piece, &rows, begin, end, is_first ? &whole : &part);
        if (!is_first) job->kernels->attention_merge(&whole, &part, n, head_dim);
        begin = end;
    }
    for (int i = 0; i < n; i++) {
        float *out = job->out + rows.out_off[i];
        job->kernels->attention_finish(whole.o + i * head_dim, whole.denom[i], out, head_dim);
        if (is_rotated(job->store->layout.dtype)) job->kernels->hadamard(out, out, unrotate_factor(head_dim), head_dim);
    }
}

void cpu_attention_run(struct thread_pool *pool, const struct kernel_table *kernels, const struct block_store *store,
                       const float *q, int n_heads, const struct model_batch *batch, int group, int layer, int window,
                       float *out, struct layer_ops_counts *counts) {
    struct attend_job job = {.kernels = kernels,
                             .store = store,
                             .q = q,
                             .out = out,
                             .n_heads = n_heads,
                             .group = n_heads / store->layout.n_kv_heads,
                             .batch = batch,
                             .kv_group = group,
                             .layer = layer,
                             .window = window};
    int n_tasks = 0;
    for (int i = 0; i < batch->n_sequences; i++)
        n_tasks += n_pieces_of(&job, &batch->sequences[i]) * store->layout.n_kv_heads;
    thread_pool_run(pool, attend_task, &job, n_tasks);
    counts->attention_rows += atomic_load_explicit(&job.n_rows_calls, memory_order_relaxed);
    counts->attention_keys += atomic_load_explicit(&job.n_keys_calls, memory_order_relaxed);
}
