#include "engine/step_work.h"

/* Multiply-adds of one row in the products of all layers. */
static double row_macs(const struct model_config *model) {
    double q_dim = (double)model->n_heads * model->head_dim, kv_dim = (double)model->n_kv_heads * model->head_dim;
    return model->n_layers * (double)model->d_model * (2 * q_dim + 2 * kv_dim + 3.0 * model->d_ff);
}

/* Keys that rows [from, to) see together in a layer, and the distinct ones among them. */
static double keys_seen(int from, int to, int window, double *out_distinct) {
    double n = 0;
    int first = window && from - window + 1 > 0 ? from - window + 1 : 0;
    *out_distinct = to - first;
    if (!window || to <= window) return ((double)from + 1 + to) * (to - from) / 2;
    for (int pos = from; pos < to; pos++) n += pos + 1 < window ? pos + 1 : window;
    return n;
}

void step_work_add(struct phase_work *work, const struct engine *engine, const struct plan_item *item) {
    const struct model_config *model = &engine->model;
    const struct kv_layout *layout = &engine->store.stores[0].layout; /* a token of a layer is the same in all groups */
    double layer_bytes = (double)kv_layout_token_bytes(layout) / layout->n_layers;
    double q_dim = (double)model->n_heads * model->head_dim;
    int n_rows = item->to - item->from, window = -1;
    double n_keys = 0, n_distinct = 0;
    work->flops +=
        2 * (row_macs(model) * n_rows + (double)model->d_model * model->n_vocab * (item->to - item->logits_from));
    for (int i = 0; i < model->n_layers; i++) {
        if (model->layers[i].window != window) {
            window = model->layers[i].window;
            n_keys = keys_seen(item->from, item->to, window, &n_distinct);
        }
        work->flops += 4 * q_dim * n_keys;
        work->bytes_read += layer_bytes * n_distinct;
    }
    work->bytes_read += (double)engine->weight_bytes * n_rows / engine->plan.n_rows;
    work->kv_bytes_written += layer_bytes * model->n_layers * n_rows;
}
