#include "model/forward.h"

#include <string.h>

#include "base/mem.h"
#include "model/arch.h"
#include "model/cpu_ops.h"

static const struct arch *const archs[] = {&arch_llama, &arch_gemma3, &arch_qwen2, &arch_qwen3};

#define RELEASE_BYTES ((size_t)8 << 20)

struct forward {
    const struct gguf *gguf;
    size_t released_bytes; /* of its tensors */
    const struct arch *arch;
    struct model_config config;
    struct model_weights weights;
    struct activations act;
    struct layer_ops *ops;
    forward_watch_fn *watch; /* may be NULL */
    void *watch_arg;
};

static const struct arch *find_arch(const char *name) {
    for (size_t i = 0; i < sizeof archs / sizeof archs[0]; i++)
        if (strcmp(archs[i]->name, name) == 0) return archs[i];
    return NULL;
}

enum status forward_read_config(struct model_config *out_config, const struct gguf *gguf, struct status_note *note) {
    struct gguf_text name;
    char text[32] = "";
    enum status status = gguf_get_text(gguf, "general.architecture", &name, note);
    if (status) return status;
    memcpy(text, name.ptr, name.n_bytes < sizeof text - 1 ? name.n_bytes : sizeof text - 1);
    const struct arch *arch = find_arch(text);
    if (!arch)
        return status_fail(note, STATUS_FORMAT, "key general.architecture is '%s', which is not supported", text);
    status = model_config_read(out_config, gguf, note);
    return status ? status : arch->read_config(out_config, gguf, note);
}

static double to_bf16(double value) {
    return (double)dtype_bf16_to_f32(dtype_f32_to_bf16((float)value));
}

static void round_tables(struct model_config *config) {
    config->embed_scale = (float)to_bf16((double)config->embed_scale);
    for (int i = 0; i < MODEL_MAX_ROPES; i++)
        for (int p = 0; p < config->ropes[i].n_pairs; p++)
            config->ropes[i].inv_freq[p] = to_bf16(config->ropes[i].inv_freq[p]);
}

static int largest_k(const struct model_config *config) {
    int q_dim = config->n_heads * config->head_dim, k = config->d_model > config->d_ff ? config->d_model : config->d_ff;
    return k > q_dim ? k : q_dim;
}

enum status forward_create(struct forward **out_forward, const struct gguf *gguf, struct thread_pool *pool,
                           const struct kernel_table *kernels, struct group_store *store,
                           const struct forward_limits *limits, struct status_note *note) {
    struct forward *forward = mem_alloc(sizeof *forward);
    *out_forward = NULL;
    if (!forward) return status_fail(note, STATUS_NOMEM, "no memory for the model");
    forward->gguf = gguf;
    enum status status = forward_read_config(&forward->config, gguf, note);
    if (limits->has_bf16_tables) round_tables(&forward->config);
    if (!status) {
        forward->arch = find_arch(forward->config.arch);
        status = model_weights_bind(&forward->weights, &forward->config, gguf, forward->arch->extras, note);
    }
    if (!status) status = model_weights_pack(&forward->weights, pool, limits->activations, limits->must_stop, note);
    if (!status) {
        status = cpu_ops_create(&forward->ops, pool, kernels, store, limits->max_rows, largest_k(&forward->config));
        if (!status)
            status = activations_init(&forward->act, forward->ops, &forward->config, limits->max_rows,
                                      limits->max_logit_rows);
        if (status) status_fail(note, status, "no memory for steps of %d tokens", limits->max_rows);
    }
    *out_forward = forward;
    if (status) forward_destroy(out_forward);
    return status;
}

void forward_destroy(struct forward **forward_ptr) {
    struct forward *forward = *forward_ptr;
    if (!forward) return;
    if (forward->ops) cpu_ops_destroy(&forward->ops);
    model_weights_deinit(&forward->weights);
    mem_free(forward);
    *forward_ptr = NULL;
}

bool forward_release_file(struct forward *forward) {
    forward->released_bytes += gguf_release_tensors(forward->gguf, forward->released_bytes, RELEASE_BYTES);
    return forward->released_bytes < gguf_file_bytes(forward->gguf) - gguf_data_off(forward->gguf);
}

const struct model_config *forward_config(const struct forward *forward) {
    return &forward->config;
}

size_t forward_weight_bytes(const struct forward *forward) {
    return forward->weights.pool_bytes;
}

struct layer_ops_counts forward_counts(const struct forward *forward) {
    return forward->ops->counts;
}

static void prepare_angles(struct forward *forward, const struct model_batch *batch) {
    for (int i = 0; i < MODEL_MAX_ROPES; i++) {
        const struct rope *rope = &forward->config.ropes[i];
        if (rope->n_pairs)
            forward->ops->rope_angles(forward->ops, rope, batch->positions,
                                      activations_rows(forward->act.angles[i], batch->n_rows));
    }
}

static void compute_logits(struct forward *forward, const struct model_batch *batch, float *out_logits) {
    struct layer_ops *ops = forward->ops;
    struct tensor_ref rows = activations_rows(forward->act.logit_hidden, batch->n_logit_rows);
    struct tensor_ref logits = activations_rows(forward->act.logits, batch->n_logit_rows);
    ops->gather_rows(ops, activations_rows(forward->act.hidden, batch->n_rows), batch->logit_rows, rows);
    ops->rms_norm(ops, rows, &forward->weights.output_norm, forward->config.norm_eps, rows);
    const struct weight *const output[] = {&forward->weights.output};
    ops->matmul(ops, rows, 1, output, &logits);
    ops->tensor_fetch(ops, logits, out_logits);
}

void forward_watch(struct forward *forward, forward_watch_fn *watch, void *arg) {
    forward->watch = watch;
    forward->watch_arg = arg;
}

void forward_hidden(struct forward *forward, const struct model_batch *batch, float *out) {
    struct layer_ops *ops = forward->ops;
    struct tensor_ref rows = activations_rows(forward->act.normed, batch->n_hidden_rows);
    ops->gather_rows(ops, activations_rows(forward->act.hidden, batch->n_rows), batch->hidden_rows, rows);
    ops->rms_norm(ops, rows, &forward->weights.output_norm, forward->config.norm_eps, rows);
    ops->tensor_fetch(ops, rows, out);
}

bool forward_run(struct forward *forward, const struct model_batch *batch, float *out_logits) {
    REQUIRE(batch->n_rows >= 1 && batch->n_rows <= forward->act.max_rows);
    REQUIRE(batch->n_logit_rows <= forward->act.max_logit_rows);
    struct arch_step step = {forward->ops, &forward->config, &forward->weights, &forward->act, batch};
    prepare_angles(forward, batch);
    forward->ops->embed(forward->ops, &forward->weights.embed, batch->tokens, forward->config.embed_scale,
                        activations_rows(forward->act.hidden, batch->n_rows));
    for (int layer = 0; layer < forward->config.n_layers; layer++) {
        if (forward->watch && forward->watch(forward->watch_arg)) return false;
        forward->arch->run_layer(&step, layer);
    }
    if (batch->n_logit_rows) compute_logits(forward, batch, out_logits);
    return true;
}
