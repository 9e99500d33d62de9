#include "model/model_weights.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "kernels/dequantize.h"
#include "kernels/kernel_ops.h"
#include "kernels/pack.h"

#define ALIGN_BYTES 64u

/* ---- binding ---- */

struct binder {
    const struct gguf *gguf;
    struct status_note *note;
    enum status status; /* the first failure; later calls do nothing */
};

static void bind(struct binder *binder, struct weight *weight, const char *name, int n_out, int k) {
    *weight = (struct weight){0};
    if (binder->status) return;
    const struct gguf_tensor *tensor = gguf_tensor_find(binder->gguf, name);
    if (!tensor) {
        binder->status = status_fail(binder->note, STATUS_FORMAT, "tensor %s is missing", name);
        return;
    }
    uint64_t out = n_out == 1 && tensor->n_dims == 1 ? 1 : tensor->dims[1];
    if (tensor->n_dims > 2 || tensor->dims[0] != (uint64_t)k || (n_out > 0 && out != (uint64_t)n_out) ||
        out > INT32_MAX) {
        binder->status =
            status_fail(binder->note, STATUS_FORMAT, "tensor %s is %llu x %llu, expected %d x %d", name,
                        (unsigned long long)tensor->dims[0], (unsigned long long)tensor->dims[1], k, n_out);
        return;
    }
    if (!dequantize_is_known(tensor->dtype)) {
        binder->status =
            status_fail(binder->note, STATUS_FORMAT, "tensor %s has type %s, which cannot be computed with", name,
                        dtype_name(tensor->dtype));
        return;
    }
    *weight = (struct weight){.dtype = tensor->dtype, .n_out = (int)out, .k = k, .file_bytes = tensor->bytes};
}

static void bind_layer(struct binder *binder, struct weight *weight, int layer, const char *part, int n_out, int k) {
    char name[64];
    snprintf(name, sizeof name, "blk.%d.%s", layer, part);
    bind(binder, weight, name, n_out, k);
}

static void bind_extras(struct binder *binder, struct layer_weights *layer, int idx, const struct model_config *config,
                        unsigned extras) {
    int q_dim = config->n_heads * config->head_dim, kv_dim = config->n_kv_heads * config->head_dim;
    if (extras & MODEL_WEIGHTS_QK_NORM) {
        bind_layer(binder, &layer->q_norm, idx, "attn_q_norm.weight", 1, config->head_dim);
        bind_layer(binder, &layer->k_norm, idx, "attn_k_norm.weight", 1, config->head_dim);
    }
    if (extras & MODEL_WEIGHTS_POST_NORM) {
        bind_layer(binder, &layer->post_attn_norm, idx, "post_attention_norm.weight", 1, config->d_model);
        bind_layer(binder, &layer->post_ffn_norm, idx, "post_ffw_norm.weight", 1, config->d_model);
    }
    if (extras & MODEL_WEIGHTS_QKV_BIAS) {
        bind_layer(binder, &layer->q_bias, idx, "attn_q.bias", 1, q_dim);
        bind_layer(binder, &layer->k_bias, idx, "attn_k.bias", 1, kv_dim);
        bind_layer(binder, &layer->v_bias, idx, "attn_v.bias", 1, kv_dim);
    }
}

/* Masks of allowed ids are as long as the logits: a list of tokens may not be longer. */
static enum status count_tokens(struct model_config *config, const struct gguf *gguf, struct status_note *note) {
    static const char key[] = "tokenizer.ggml.tokens";
    struct gguf_array tokens;
    config->n_tokens = config->n_vocab;
    if (config->n_vocab < 1) return status_fail(note, STATUS_FORMAT, "tensor token_embd.weight has no rows");
    if (!gguf_has(gguf, key)) return STATUS_OK;
    enum status status = gguf_get_array(gguf, key, &tokens, note);
    if (status) return status;
    if (tokens.n_items > (uint64_t)config->n_vocab)
        return status_fail(note, STATUS_FORMAT, "%s has %llu tokens, token_embd.weight %d rows", key,
                           (unsigned long long)tokens.n_items, config->n_vocab);
    if (tokens.n_items) config->n_tokens = (int)tokens.n_items;
    return STATUS_OK;
}

enum status model_weights_bind(struct model_weights *weights, struct model_config *config, const struct gguf *gguf,
                               unsigned extras, struct status_note *note) {
    *weights = (struct model_weights){.n_layers = config->n_layers};
    weights->layers = mem_alloc_array((size_t)config->n_layers, sizeof *weights->layers);
    if (!weights->layers) return status_fail(note, STATUS_NOMEM, "no memory for %d layers", config->n_layers);
    struct binder binder = {.gguf = gguf, .note = note};
    int q_dim = config->n_heads * config->head_dim, kv_dim = config->n_kv_heads * config->head_dim;
    bind(&binder, &weights->embed, "token_embd.weight", 0, config->d_model);
    config->n_vocab = weights->embed.n_out;
    bind(&binder, &weights->output_norm, "output_norm.weight", 1, config->d_model);
    if (gguf_tensor_find(gguf, "output.weight"))
        bind(&binder, &weights->output, "output.weight", config->n_vocab, config->d_model);
    else
        weights->output = weights->embed;
    for (int i = 0; i < config->n_layers; i++) {
        struct layer_weights *layer = &weights->layers[i];
        bind_layer(&binder, &layer->attn_norm, i, "attn_norm.weight", 1, config->d_model);
        bind_layer(&binder, &layer->attn_q, i, "attn_q.weight", q_dim, config->d_model);
        bind_layer(&binder, &layer->attn_k, i, "attn_k.weight", kv_dim, config->d_model);
        bind_layer(&binder, &layer->attn_v, i, "attn_v.weight", kv_dim, config->d_model);
        bind_layer(&binder, &layer->attn_out, i, "attn_output.weight", config->d_model, q_dim);
        bind_layer(&binder, &layer->ffn_norm, i, "ffn_norm.weight", 1, config->d_model);
        bind_layer(&binder, &layer->ffn_gate, i, "ffn_gate.weight", config->d_ff, config->d_model);
        bind_layer(&binder, &layer->ffn_up, i, "ffn_up.weight", config->d_ff, config->d_model);
        bind_layer(&binder, &layer->ffn_down, i, "ffn_down.weight", config->d_model, config->d_ff);
        bind_extras(&binder, layer, i, config, extras);
    }
    if (!binder.status) binder.status = count_tokens(config, gguf, note);
    if (binder.status) model_weights_deinit(weights);
    return binder.status;
}

/* ---- packing ---- */

/* A weight's place in the pool: parts of equal size that are packed one by one, a tile or row or the vector. */
struct place {
    struct weight *weight;
    size_t off, part_bytes;
    int n_parts;
};

struct packing {
    enum activation_form activations;
    const atomic_bool *must_stop; /* relaxed: it orders nothing */
    struct place *places;         /* [n_places] by off */
    int n_places;
    size_t used_bytes;
    char *pool;
};

static size_t row_bytes_of(const struct weight *weight) {
    return (size_t)(weight->k / dtype_block_elements(weight->dtype)) * (size_t)dtype_block_bytes(weight->dtype);
}

static void add_place(struct packing *packing, struct weight *weight, enum weight_order order) {
    if (!weight->k) return;
    bool is_plain = dtype_block_elements(weight->dtype) == 1;
    bool has_tiles = pack_is_known(weight->dtype) && (is_plain || packing->activations != ACTIVATIONS_F32);
    struct place place = {weight, packing->used_bytes, (size_t)weight->k * sizeof(float), 1};
    weight->order = order;
    weight->act_form = packing->activations == ACTIVATIONS_INT16 ? ACT_INT16 : ACT_INT8;
    weight->tile_dtype = has_tiles && order == WEIGHT_TILES ? weight->dtype : DTYPE_F32;
    if (order == WEIGHT_TILES) {
        place.part_bytes = pack_tile_bytes(weight->tile_dtype, weight->k);
        place.n_parts = (weight->n_out + GEMM_TILE_COLS - 1) / GEMM_TILE_COLS;
    } else if (order == WEIGHT_ROWS) {
        place.part_bytes = row_bytes_of(weight);
        place.n_parts = weight->n_out;
    }
    packing->places[packing->n_places++] = place;
    size_t n_bytes = place.part_bytes * (size_t)place.n_parts;
    packing->used_bytes += (n_bytes + ALIGN_BYTES - 1) / ALIGN_BYTES * ALIGN_BYTES;
}

#define PLACES_PER_LAYER 16
#define OTHER_PLACES 3

/* In the order of use. */
static void add_all(struct packing *packing, struct model_weights *weights) {
    for (int i = 0; i < weights->n_layers; i++) {
        struct layer_weights *layer = &weights->layers[i];
        struct weight *const vectors[] = {&layer->attn_norm, &layer->q_norm,         &layer->k_norm,
                                          &layer->q_bias,    &layer->k_bias,         &layer->v_bias,
                                          &layer->ffn_norm,  &layer->post_attn_norm, &layer->post_ffn_norm};
        struct weight *const matrices[] = {&layer->attn_q,   &layer->attn_k, &layer->attn_v,  &layer->attn_out,
                                           &layer->ffn_gate, &layer->ffn_up, &layer->ffn_down};
        _Static_assert(sizeof vectors + sizeof matrices == PLACES_PER_LAYER * sizeof *vectors, "room for all places");
        for (size_t j = 0; j < sizeof vectors / sizeof vectors[0]; j++) add_place(packing, vectors[j], WEIGHT_VECTOR);
        for (size_t j = 0; j < sizeof matrices / sizeof matrices[0]; j++) add_place(packing, matrices[j], WEIGHT_TILES);
    }
    add_place(packing, &weights->output_norm, WEIGHT_VECTOR);
    add_place(packing, &weights->output, WEIGHT_TILES);
    if (weights->embed.file_bytes != weights->output.file_bytes) add_place(packing, &weights->embed, WEIGHT_ROWS);
}

/* F32 tile of a type without tiles: dequantized row by row. */
static void pack_float_tile(const struct weight *weight, int tile_idx, float *tile) {
    size_t row_bytes = row_bytes_of(weight);
    float piece[256];
    memset(tile, 0, pack_tile_bytes(DTYPE_F32, weight->k));
    for (int c = 0; c < GEMM_TILE_COLS && tile_idx * GEMM_TILE_COLS + c < weight->n_out; c++) {
        const char *row = (const char *)weight->file_bytes + (size_t)(tile_idx * GEMM_TILE_COLS + c) * row_bytes;
        for (int k = 0; k < weight->k; k += 256) {
            int n = weight->k - k < 256 ? weight->k - k : 256;
            size_t off = (size_t)(k / dtype_block_elements(weight->dtype)) * (size_t)dtype_block_bytes(weight->dtype);
            dequantize_row(weight->dtype, row + off, piece, n);
            for (int i = 0; i < n; i++) tile[(k + i) * GEMM_TILE_COLS + c] = piece[i];
        }
    }
}

static void pack_part(const struct weight *weight, int part_idx, void *out) {
    if (weight->order == WEIGHT_VECTOR)
        dequantize_row(weight->dtype, weight->file_bytes, out, weight->k);
    else if (weight->order == WEIGHT_ROWS)
        memcpy(out, (const char *)weight->file_bytes + row_bytes_of(weight) * (size_t)part_idx, row_bytes_of(weight));
    else if (weight->tile_dtype == weight->dtype)
        pack_tile(weight->dtype, weight->file_bytes, weight->n_out, part_idx * GEMM_TILE_COLS, weight->k, out);
    else
        pack_float_tile(weight, part_idx, out);
}

/* A task is all parts that begin in one huge page: two threads that meet in a page which is not backed yet would both
 * clear one for it. */
static void pack_task(void *arg, int page_idx, int worker_idx) {
    const struct packing *packing = arg;
    size_t begin = (size_t)page_idx * MEM_HUGE_PAGE_BYTES, end = begin + MEM_HUGE_PAGE_BYTES;
    (void)worker_idx;
    if (packing->must_stop && atomic_load_explicit(packing->must_stop, memory_order_relaxed)) return;
    for (int i = 0; i < packing->n_places && packing->places[i].off < end; i++) {
        const struct place *place = &packing->places[i];
        size_t skipped = begin > place->off ? begin - place->off : 0;
        size_t part = (skipped + place->part_bytes - 1) / place->part_bytes;
        for (; part < (size_t)place->n_parts && place->off + part * place->part_bytes < end; part++)
            pack_part(place->weight, (int)part, packing->pool + place->off + part * place->part_bytes);
    }
}

enum status model_weights_pack(struct model_weights *weights, struct thread_pool *pool,
                               enum activation_form activations, const atomic_bool *must_stop,
                               struct status_note *note) {
    struct packing packing = {.activations = activations, .must_stop = must_stop};
    size_t max_places = (size_t)weights->n_layers * PLACES_PER_LAYER + OTHER_PLACES;
    packing.places = mem_alloc_array(max_places, sizeof *packing.places);
    if (!packing.places) return status_fail(note, STATUS_NOMEM, "no memory for a list of %zu tensors", max_places);
    add_all(&packing, weights);
    weights->pool_bytes = packing.used_bytes;
    packing.pool = weights->pool = mem_map_pages(weights->pool_bytes);
    if (weights->pool) {
        for (int i = 0; i < packing.n_places; i++)
            packing.places[i].weight->packed = packing.pool + packing.places[i].off;
        size_t n_pages = (packing.used_bytes + MEM_HUGE_PAGE_BYTES - 1) / MEM_HUGE_PAGE_BYTES;
        thread_pool_run(pool, pack_task, &packing, (int)n_pages);
    }
    mem_free(packing.places);
    if (!weights->pool)
        return status_fail(note, STATUS_NOMEM, "no memory for %zu bytes of weights", weights->pool_bytes);
    if (must_stop && atomic_load_explicit(must_stop, memory_order_relaxed))
        return status_fail(note, STATUS_CANCELLED, "loading was cancelled");
    if (activations == ACTIVATIONS_AUTO) weights->output.act_form = ACT_INT16;
    if (weights->embed.file_bytes == weights->output.file_bytes) weights->embed = weights->output;
    return STATUS_OK;
}

void model_weights_deinit(struct model_weights *weights) {
    mem_unmap_pages(weights->pool, weights->pool_bytes);
    mem_free(weights->layers);
    *weights = (struct model_weights){0};
}
