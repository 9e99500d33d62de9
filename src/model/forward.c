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
    struct batch_sequence *kept_sequences; /* [max_logit_rows] */
    forward_watch_fn *watch;               /* may be NULL */
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
        if (!status) {
            forward->kept_sequences = mem_alloc_array((size_t)limits->max_logit_rows, sizeof(struct batch_sequence));
            if (!forward->kept_sequences) status = STATUS_NOMEM;
        }
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
    mem_free(forward->kept_sequences);
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

/* The rows whose logits are wanted, as a batch of their own: what the last layer's attention goes on with. */
static struct model_batch keep_rows(struct forward *forward, const struct model_batch *batch) {
    struct batch_sequence *kept = forward->kept_sequences;
    const struct batch_sequence *from = batch->sequences, *last_from = NULL;
    int n_kept = 0;
    for (int i = 0; i < batch->n_logit_rows; i++) {
        int row = batch->logit_rows[i];
        while (row >= from->row_begin + from->n_rows) from++;
        if (from == last_from && row == batch->logit_rows[i - 1] + 1) {
            kept[n_kept - 1].n_rows++;
            continue;
        }
        kept[n_kept] = *from;
        kept[n_kept].row_begin = i;
        kept[n_kept].n_rows = 1;
        kept[n_kept++].first_pos = from->first_pos + row - from->row_begin;
        last_from = from;
    }
    return (struct model_batch){.n_rows = batch->n_logit_rows, .n_sequences = n_kept, .sequences = kept};
}

void forward_watch(struct forward *forward, forward_watch_fn *watch, void *arg) {
    forward->watch = watch;
    forward->watch_arg = arg;
}

/* After the last layer. Where all rows were kept for their hidden states, those are in act->part from here on. */
static const float *compute_logits(struct arch_step *step) {
    struct layer_ops *ops = step->ops;
    const struct model_batch *batch = step->batch;
    const struct weight *const output[] = {&step->weights->output};
    struct matmul_input input = arch_input(step, &step->weights->output_norm);
    if (batch->n_hidden_rows) {
        struct tensor_ref normed = activations_rows(step->act->part, batch->n_rows);
        ops->read_input(ops, &input, normed);
        input = (struct matmul_input){.x = activations_rows(step->act->logit_hidden, batch->n_logit_rows)};
        if (batch->n_logit_rows) ops->gather_rows(ops, normed, batch->logit_rows, input.x);
    }
    struct tensor_ref logits = activations_rows(step->act->logits, batch->n_logit_rows);
    if (batch->n_logit_rows) ops->matmul(ops, &input, 1, output, &logits);
    return ops->tensor_read(ops, logits);
}

bool forward_run(struct forward *forward, const struct model_batch *batch, const float **out_logits) {
    REQUIRE(batch->n_rows >= 1 && batch->n_rows <= forward->act.max_rows);
    REQUIRE(batch->n_logit_rows <= forward->act.max_logit_rows);
    struct model_batch kept = keep_rows(forward, batch);
    bool keeps_all = batch->n_hidden_rows > 0 || batch->n_logit_rows == batch->n_rows;
    struct arch_step step = {.ops = forward->ops,
                             .config = &forward->config,
                             .weights = &forward->weights,
                             .act = &forward->act,
                             .batch = batch,
                             .kept = keeps_all ? batch : &kept,
                             .hidden = activations_rows(forward->act.hidden, batch->n_rows)};
    prepare_angles(forward, batch);
    forward->ops->embed(forward->ops, &forward->weights.embed, batch->tokens, forward->config.embed_scale, step.hidden);
    for (int layer = 0; layer < forward->config.n_layers; layer++) {
        if (forward->watch && forward->watch(forward->watch_arg)) return false;
        forward->arch->run_layer(&step, layer);
    }
    *out_logits = compute_logits(&step);
    return true;
}

void forward_hidden(struct forward *forward, const struct model_batch *batch, float *out) {
    struct layer_ops *ops = forward->ops;
    struct tensor_ref rows = activations_rows(forward->act.hidden, batch->n_hidden_rows);
    ops->gather_rows(ops, activations_rows(forward->act.part, batch->n_rows), batch->hidden_rows, rows);
    memcpy(out, ops->tensor_read(ops, rows), (size_t)rows.n_rows * (size_t)rows.n_cols * sizeof(float));
}
