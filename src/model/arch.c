#include "model/arch.h"

static const struct weight no_weight;

static struct tensor_ref rows_of(const struct arch_step *step, struct tensor_ref tensor) {
    return activations_rows(tensor, step->hidden.n_rows);
}

struct matmul_input arch_input(struct arch_step *step, const struct weight *norm) {
    struct matmul_input input = {step->hidden, step->part, step->part_norm, norm, step->config->norm_eps};
    step->part.n_cols = 0;
    step->part_norm = NULL;
    return input;
}

void arch_add_part(struct arch_step *step, const struct weight *norm) {
    step->part_norm = norm;
}

/* part = x * weight^T */
static void make_part(struct arch_step *step, struct tensor_ref x, const struct weight *weight) {
    const struct weight *const weights[] = {weight};
    struct matmul_input input = {.x = x};
    step->part = rows_of(step, step->act->part);
    step->ops->matmul(step->ops, &input, 1, weights, &step->part);
}

/* hidden = the kept rows of hidden */
static void drop_rows(struct arch_step *step) {
    const struct model_batch *batch = step->batch;
    struct tensor_ref kept = activations_rows(step->act->logit_hidden, batch->n_logit_rows);
    if (kept.n_rows) step->ops->gather_rows(step->ops, step->hidden, batch->logit_rows, kept);
    step->hidden = kept;
}

/* The products of a layer whose rows are dropped as soon as it has their K and V; returns the angles of q's rows. */
static struct tensor_ref multiply_and_drop(struct arch_step *step, const struct layer_weights *layer,
                                           struct tensor_ref angles, struct tensor_ref k, struct tensor_ref v) {
    struct layer_ops *ops = step->ops;
    const struct weight *const kv[] = {&layer->attn_k, &layer->attn_v}, *const only_q[] = {&layer->attn_q};
    struct matmul_input input = arch_input(step, &layer->attn_norm);
    ops->matmul(ops, &input, 2, kv, (const struct tensor_ref[]){k, v});
    drop_rows(step);
    struct tensor_ref kept_angles = rows_of(step, step->act->logit_angles), q = rows_of(step, step->act->q);
    if (!step->hidden.n_rows) return kept_angles;
    ops->gather_rows(ops, angles, step->batch->logit_rows, kept_angles);
    input = arch_input(step, &layer->attn_norm);
    ops->matmul(ops, &input, 1, only_q, &q);
    return kept_angles;
}

void arch_attention(struct arch_step *step, int layer_idx) {
    const struct layer_weights *layer = &step->weights->layers[layer_idx];
    const struct model_layer *plan = &step->config->layers[layer_idx];
    const struct activations *act = step->act;
    struct layer_ops *ops = step->ops;
    struct tensor_ref k = rows_of(step, act->k), v = rows_of(step, act->v);
    struct tensor_ref angles = rows_of(step, act->angles[plan->rope_idx]), q_angles = angles;
    if (layer_idx == step->config->n_layers - 1 && step->kept != step->batch) {
        q_angles = multiply_and_drop(step, layer, angles, k, v);
    } else {
        const struct weight *const qkv[] = {&layer->attn_q, &layer->attn_k, &layer->attn_v};
        struct matmul_input input = arch_input(step, &layer->attn_norm);
        ops->matmul(ops, &input, 3, qkv, (const struct tensor_ref[]){rows_of(step, act->q), k, v});
    }
    struct tensor_ref q = rows_of(step, act->q), heads = rows_of(step, act->heads);
    const struct heads_finish finishes[] = {{k, &layer->k_bias, &layer->k_norm, angles, 1},
                                            {q, &layer->q_bias, &layer->q_norm, q_angles, step->config->query_scale},
                                            {v, &layer->v_bias, &no_weight, {0}, 1}};
    ops->finish_heads(ops, layer->v_bias.k ? 3 : 2, finishes, step->config->norm_eps,
                      step->config->ropes[plan->rope_idx].is_halves, step->config->head_dim);
    ops->kv_store(ops, k, v, step->batch, layer_idx);
    if (!step->hidden.n_rows) return;
    ops->attention(ops, q, q.n_rows == k.n_rows ? step->batch : step->kept, layer_idx, plan->window, heads);
    make_part(step, heads, &layer->attn_out);
}

void arch_feed_forward(struct arch_step *step, int layer_idx, enum gate_kind kind) {
    const struct layer_weights *layer = &step->weights->layers[layer_idx];
    if (!step->hidden.n_rows) return;
    struct tensor_ref gate = rows_of(step, step->act->gate);
    struct matmul_input input = arch_input(step, &layer->ffn_norm);
    step->ops->matmul_gated(step->ops, &input, &layer->ffn_gate, &layer->ffn_up, kind, gate);
    make_part(step, gate, &layer->ffn_down);
}

void arch_run_pre_norm_layer(struct arch_step *step, int layer) {
    arch_attention(step, layer);
    arch_add_part(step, NULL);
    arch_feed_forward(step, layer, GATE_SILU);
    arch_add_part(step, NULL);
}
