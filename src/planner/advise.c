#include "planner/advise.h"

#include <math.h>

#include "kvcache/kv_layout.h"

/* ---- memory ---- */

static double layer_token_bytes(const struct layer_sizes *layer, enum dtype kv_dtype) {
    if (layer->kind != LAYER_KEYS && layer->kind != LAYER_LATENT) return 0;
    double bytes = (double)kv_layout_vector_bytes(kv_dtype, layer->k_dim);
    if (layer->v_dim) bytes += (double)kv_layout_vector_bytes(kv_dtype, layer->v_dim);
    return layer->n_kv_heads * bytes;
}

double advise_token_bytes(const struct model_sizes *sizes, enum dtype kv_dtype) {
    double bytes = 0;
    for (int i = 0; i < sizes->n_layers; i++) bytes += layer_token_bytes(&sizes->layers[i], kv_dtype);
    return bytes;
}

double advise_token_bytes_by_query_heads(const struct model_sizes *sizes, enum dtype kv_dtype) {
    double bytes = 0;
    for (int i = 0; i < sizes->n_layers; i++) {
        struct layer_sizes layer = sizes->layers[i];
        if (layer.kind == LAYER_LATENT) {
            layer.k_dim = layer.score_dim;
            layer.v_dim = layer.mix_dim;
        }
        if (sizes->n_heads) layer.n_kv_heads = sizes->n_heads;
        bytes += layer_token_bytes(&layer, kv_dtype);
    }
    return bytes;
}

static int seen_tokens(const struct layer_sizes *layer, int n_tokens) {
    return layer->window && layer->window < n_tokens ? layer->window : n_tokens;
}

/* States are kept in 32 bits: sums over the whole past. */
static double state_bytes(const struct layer_sizes *layer) {
    return 4.0 * (double)layer->state_elements;
}

double advise_sequence_bytes(const struct model_sizes *sizes, enum dtype kv_dtype, int n_tokens, int block_tokens) {
    double bytes = 0;
    for (int i = 0; i < sizes->n_layers; i++) {
        const struct layer_sizes *layer = &sizes->layers[i];
        int n_seen = seen_tokens(layer, n_tokens), n_blocks = (n_seen + block_tokens - 1) / block_tokens;
        /* A window that moves by single tokens reaches into one block more than it fills. */
        if (n_seen < n_tokens && block_tokens > 1) n_blocks++;
        bytes += state_bytes(layer) + (double)n_blocks * block_tokens * layer_token_bytes(layer, kv_dtype);
    }
    return bytes;
}

long advise_n_sessions(const struct model_sizes *sizes, enum dtype kv_dtype, int n_tokens, int block_tokens,
                       double memory_bytes) {
    double left = memory_bytes - (double)sizes->weight_bytes;
    double each = advise_sequence_bytes(sizes, kv_dtype, n_tokens, block_tokens);
    return left > 0 && each > 0 ? (long)fmin(left / each, 1e9) : 0;
}

/* ---- work ---- */

/* Keys that rows 0 .. n_tokens-1 see together. */
static double keys_seen(int n_tokens, int window) {
    double n = n_tokens, w = window && window < n_tokens ? window : n_tokens;
    return w * (w + 1) / 2 + (n - w) * w;
}

static double key_macs(const struct model_sizes *sizes, const struct layer_sizes *layer) {
    return layer->kind == LAYER_STATE ? 0 : (double)sizes->n_heads * (layer->score_dim + layer->mix_dim);
}

struct advise_flops advise_prompt_flops(const struct model_sizes *sizes, int n_tokens) {
    struct advise_flops flops = {.linear = 2 * sizes->row_macs * n_tokens,
                                 .logits = 2.0 * sizes->d_model * sizes->n_vocab};
    for (int i = 0; i < sizes->n_layers; i++)
        flops.attention += 2 * key_macs(sizes, &sizes->layers[i]) * keys_seen(n_tokens, sizes->layers[i].window);
    return flops;
}

/* Windowed layers cost the same for every token, as the matrices do. */
double advise_crossover(const struct model_sizes *sizes) {
    double linear = sizes->row_macs, square = 0;
    for (int i = 0; i < sizes->n_layers; i++) {
        const struct layer_sizes *layer = &sizes->layers[i];
        if (layer->window)
            linear += key_macs(sizes, layer) * layer->window;
        else
            square += key_macs(sizes, layer) / 2;
    }
    return square > 0 ? linear / square : 0;
}

double advise_read_bytes(const struct model_sizes *sizes, enum dtype kv_dtype, int n_tokens) {
    double bytes = 0;
    for (int i = 0; i < sizes->n_layers; i++) {
        const struct layer_sizes *layer = &sizes->layers[i];
        bytes += state_bytes(layer) + seen_tokens(layer, n_tokens) * layer_token_bytes(layer, kv_dtype);
    }
    return bytes;
}

/* ---- times ---- */

/* GOPS and GB/s are operations and bytes per ns. */
static struct advise_range time_of(const struct hw_rates *rates, double flops, double n_bytes) {
    return (struct advise_range){
        fmax(flops / (rates->gops * rates->max_prefill), n_bytes / (rates->gb_s * rates->max_decode)),
        fmax(flops / (rates->gops * rates->min_prefill), n_bytes / (rates->gb_s * rates->min_decode))};
}

struct advise_range advise_ttft_ns(const struct model_sizes *sizes, const struct hw_rates *rates, int n_tokens) {
    struct advise_flops flops = advise_prompt_flops(sizes, n_tokens);
    return time_of(rates, flops.linear + flops.logits + flops.attention, (double)sizes->step_bytes);
}

struct advise_range advise_step_ns(const struct model_sizes *sizes, const struct hw_rates *rates, enum dtype kv_dtype,
                                   int n_sessions, int n_tokens, int n_chunk) {
    double rows = (double)n_sessions + n_chunk;
    double flops = 2 * sizes->row_macs * rows + 2.0 * sizes->d_model * sizes->n_vocab * n_sessions;
    for (int i = 0; i < sizes->n_layers; i++) {
        const struct layer_sizes *layer = &sizes->layers[i];
        double n_keys = (double)n_sessions * seen_tokens(layer, n_tokens) + keys_seen(n_chunk, layer->window);
        flops += 2 * key_macs(sizes, layer) * n_keys;
    }
    double n_bytes = (double)sizes->step_bytes + n_sessions * advise_read_bytes(sizes, kv_dtype, n_tokens);
    return time_of(rates, flops, n_bytes);
}
