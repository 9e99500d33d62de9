#include "model/arch.h"

static struct tensor_ref rows_of(const struct arch_step *step, struct tensor_ref tensor) {
    return activations_rows(tensor, step->batch->n_rows);
}

void arch_norm(const struct arch_step *step, const struct weight *weight) {
    step->ops->rms_norm(step->ops, rows_of(step, step->act->hidden), weight, step->config->norm_eps,
                        rows_of(step, step->act->normed));
}

/* Optional steps between the products and the rotation. */
static void finish_qkv(const struct arch_step *step, const struct layer_weights *layer, struct tensor_ref q,
                       struct tensor_ref k, struct tensor_ref v) {
    struct layer_ops *ops = step->ops;
    float eps = step->config->norm_eps;
    if (layer->q_bias.k) {
        ops->add_bias(ops, q, &layer->q_bias);
        ops->add_bias(ops, k, &layer->k_bias);
        ops->add_bias(ops, v, &layer->v_bias);
    }
    if (layer->q_norm.k) {
        ops->rms_norm(ops, q, &layer->q_norm, eps, q);
        ops->rms_norm(ops, k, &layer->k_norm, eps, k);
    }
}

void arch_attention(const struct arch_step *step, int layer_idx) {
    const struct layer_weights *layer = &step->weights->layers[layer_idx];
    const struct model_layer *plan = &step->config->layers[layer_idx];
    const struct rope *rope = &step->config->ropes[plan->rope_idx];
    struct layer_ops *ops = step->ops;
    struct tensor_ref normed = rows_of(step, step->act->normed), heads = rows_of(step, step->act->heads);
    struct tensor_ref q = rows_of(step, step->act->q), k = rows_of(step, step->act->k), v = rows_of(step, step->act->v);
    struct tensor_ref angles = rows_of(step, step->act->angles[plan->rope_idx]);
    const struct weight *const qkv[] = {&layer->attn_q, &layer->attn_k, &layer->attn_v};
    ops->matmul(ops, normed, 3, qkv, (const struct tensor_ref[]){q, k, v});
    finish_qkv(step, layer, q, k, v);
    ops->rope(ops, q, angles, rope->is_halves, step->config->head_dim);
    ops->rope(ops, k, angles, rope->is_halves, step->config->head_dim);
    ops->scale(ops, q, step->config->query_scale);
    ops->kv_store(ops, k, v, step->batch, layer_idx);
    ops->attention(ops, q, step->batch, layer_idx, plan->window, heads);
    const struct weight *const out[] = {&layer->attn_out};
    ops->matmul(ops, heads, 1, out, &normed);
}

void arch_feed_forward(const struct arch_step *step, int layer_idx, enum gate_kind kind) {
    const struct layer_weights *layer = &step->weights->layers[layer_idx];
    struct layer_ops *ops = step->ops;
    struct tensor_ref normed = rows_of(step, step->act->normed);
    struct tensor_ref gate = rows_of(step, step->act->gate), up = rows_of(step, step->act->up);
    const struct weight *const gate_up[] = {&layer->ffn_gate, &layer->ffn_up}, *const down[] = {&layer->ffn_down};
    ops->matmul(ops, normed, 2, gate_up, (const struct tensor_ref[]){gate, up});
    ops->gate(ops, kind, gate, up);
    ops->matmul(ops, gate, 1, down, &normed);
}

void arch_post_norm(const struct arch_step *step, const struct weight *weight) {
    struct tensor_ref normed = rows_of(step, step->act->normed);
    step->ops->rms_norm(step->ops, normed, weight, step->config->norm_eps, normed);
}

void arch_add_residual(const struct arch_step *step) {
    step->ops->add(step->ops, rows_of(step, step->act->hidden), rows_of(step, step->act->normed));
}

void arch_run_pre_norm_layer(const struct arch_step *step, int layer) {
    const struct layer_weights *weights = &step->weights->layers[layer];
    arch_norm(step, &weights->attn_norm);
    arch_attention(step, layer);
    arch_add_residual(step);
    arch_norm(step, &weights->ffn_norm);
    arch_feed_forward(step, layer, GATE_SILU);
    arch_add_residual(step);
}
