#include "cmd/cmd_engine.h"

#include <string.h>

#include "base/cpu.h"
#include "base/thread_pool.h"
#include "cmd/cmd_model.h"
#include "cmd/kv_type.h"
#include "model/forward.h"
#include "weights/gguf.h"
#include "weights/gguf_check.h"

#define KV_OPTION "--kv-cache-dtype"
#define USUAL_TOKENS 512 /* of a request: all that run at a time should find room for so many */
#define DEFAULT_MAX_CONTEXT 8192
#define MAX_IDENTITY_BYTES 65536
#define MAX_STEP_MS 1e6
#define HASTY_NS INT64_C(300000000)
#define CALIBRATE_NS INT64_C(4000000000)

static enum status read_numerics(const struct options *options, struct engine_options *out, struct status_note *note) {
    out->tiers = cpu_detect();
    if (options->isa) {
        enum status status = cpu_mask(out->tiers, options->isa, &out->tiers, note);
        if (status) return status;
    }
    enum status status = kv_type_parse(KV_OPTION, options->kv_cache_dtype, &out->kv_dtype, note);
    if (status) return status;
    static const char *const forms[] = {[ACTIVATIONS_AUTO] = "auto",
                                        [ACTIVATIONS_INT8] = "int8",
                                        [ACTIVATIONS_INT16] = "int16",
                                        [ACTIVATIONS_F32] = "f32"};
    for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++) {
        if (strcmp(options->activations, forms[i]) != 0) continue;
        out->activations = (enum activation_form)i;
        return STATUS_OK;
    }
    return status_fail(note, STATUS_INVALID, "--activations: '%s' is unknown (known: auto, int8, int16, f32)",
                       options->activations);
}

/* The file's size and the end of its header, where all tensors are listed: nobody has time to hash the weights. */
static void identify_weights(const struct gguf *gguf, uint8_t out[HASH_SHA256_BYTES]) {
    const struct gguf_tensor *tensor = gguf_tensor_at(gguf, 0);
    const uint8_t *file = tensor->bytes - tensor->file_off;
    uint64_t n_header = gguf_data_off(gguf), n_file = gguf_file_bytes(gguf);
    uint64_t n = n_header < MAX_IDENTITY_BYTES ? n_header : MAX_IDENTITY_BYTES;
    hash_sha256(&n_file, sizeof n_file, file + n_header - n, (size_t)n, out);
}

static enum status read_policy(const struct options *options, struct engine_options *out, struct status_note *note) {
    static const char *const names[] = {[POLICY_PROMISES] = "promises", [POLICY_FCFS] = "fcfs"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (strcmp(options->policy, names[i]) != 0) continue;
        out->policy = (enum policy_kind)i;
        return STATUS_OK;
    }
    return status_fail(note, STATUS_INVALID, "--policy: '%s' is unknown (known: promises, fcfs)", options->policy);
}

enum status cmd_engine_check(const struct options *options, struct status_note *note) {
    struct engine_options ignored = {0};
    if (options->threads > THREAD_POOL_MAX_THREADS)
        return status_fail(note, STATUS_INVALID, "--threads: %ld is above %d", options->threads,
                           THREAD_POOL_MAX_THREADS);
    if (options->threads_decode > (options->threads ? options->threads : cpu_n_usable()))
        return status_fail(note, STATUS_INVALID, "--threads-decode: %ld is above --threads", options->threads_decode);
    if (options->block_tokens != 16 && options->block_tokens != 32 && options->block_tokens != 64)
        return status_fail(note, STATUS_INVALID, "--block-tokens: %ld is not 16, 32 or 64", options->block_tokens);
    if (options->target_itl_ms < 1 || options->max_step_ms < 1 || options->target_itl_ms > MAX_STEP_MS ||
        options->max_step_ms > MAX_STEP_MS)
        return status_fail(note, STATUS_INVALID, "--target-itl-ms and --max-step-ms: %g and %g are not within 1..%g",
                           options->target_itl_ms, options->max_step_ms, MAX_STEP_MS);
    enum status status = read_policy(options, &ignored, note);
    return status ? status : read_numerics(options, &ignored, note);
}

static int min_of(int a, int b) {
    return a < b ? a : b;
}

/* Nobody says how long a context is: it is as long as n_full of them fit. */
static bool is_context_free(const struct options *options, const struct cmd_engine_needs *needs) {
    return needs->n_full > 0 && options->context == 0;
}

/* The pool's size, from what this process may use. */
static enum status size_pool(struct cmd_engine *opened, const struct options *options,
                             const struct cmd_engine_needs *needs, const struct model_config *config,
                             struct status_note *note) {
    struct engine_options *out = &opened->options;
    const struct gguf_tensor *embed = gguf_tensor_find(opened->gguf, "token_embd.weight");
    struct capacity_limits limits;
    struct capacity_request request = {.weight_bytes = (size_t)gguf_file_bytes(opened->gguf),
                                       .kv_dtype = out->kv_dtype,
                                       .block_tokens = out->block_tokens,
                                       .max_context = out->max_context,
                                       .max_sequences = needs->n_full ? needs->n_full : out->max_sequences,
                                       .max_running = out->max_sequences,
                                       .usual_tokens = needs->n_full ? USUAL_TOKENS : 0,
                                       .max_chunk = out->max_chunk,
                                       .max_rows = out->max_chunk + out->max_sequences,
                                       .max_logit_rows = out->max_logit_rows,
                                       .kv_bytes = (size_t)options->kv_cache_memory_bytes};
    int n_vocab = embed && embed->n_dims > 1 ? (int)embed->dims[1] : 0;
    capacity_read_limits(&limits, "");
    if (is_context_free(options, needs)) {
        int longest = capacity_max_context(&limits, &request, config, n_vocab);
        /* Where not even a block of each fits, the plan says what is missing for one. */
        request.max_context = longest ? longest : min_of(out->block_tokens, out->max_context);
        out->max_context = request.max_context;
        out->max_chunk = min_of(out->max_chunk, out->max_context);
        out->usual_chunk = min_of(out->usual_chunk, out->max_context);
    }
    enum status status = capacity_plan(&opened->capacity, &limits, &request, config, n_vocab, note);
    if (status) return status;
    out->kv_tokens = opened->capacity.kv_tokens;
    if (options->verbose) capacity_print(stderr, &opened->capacity, out->n_threads);
    return STATUS_OK;
}

static enum status read_sizes(const struct options *options, const struct cmd_engine_needs *needs, int model_context,
                              struct engine_options *out, struct status_note *note) {
    const char *name = needs->n_full > 0 ? "max-model-len" : "context";
    long context = options->context;
    if (is_context_free(options, needs)) {
        context = model_context;
    } else if (context == 0) {
        context = model_context < DEFAULT_MAX_CONTEXT ? model_context : DEFAULT_MAX_CONTEXT;
        if (needs->min_context > context && needs->min_context <= model_context) context = needs->min_context;
    }
    if (context < 1 || context > model_context)
        return status_fail(note, STATUS_INVALID, "--%s: %ld is not within 1..%d, what the model was made for", name,
                           context, model_context);
    if (needs->min_context > context)
        return status_fail(note, STATUS_INVALID, "--%s: %ld is too short, %d tokens must fit", name, context,
                           needs->min_context);
    out->n_threads = options->threads ? (int)options->threads : cpu_n_usable();
    out->n_decode_threads = (int)options->threads_decode;
    out->is_unpinned = options->no_pin;
    out->max_context = (int)context;
    out->max_chunk = options->chunk && options->chunk < context ? (int)options->chunk : (int)context;
    if (options->demo) { /* room to run a prompt unchunked when that is asked for */
        out->usual_chunk = out->max_chunk;
        out->max_chunk = (int)context;
    }
    out->block_tokens = (int)options->block_tokens;
    out->max_sequences = needs->max_sequences;
    out->max_logit_rows = needs->max_logit_rows > needs->max_sequences ? needs->max_logit_rows : needs->max_sequences;
    out->has_prefix_cache = !options->no_prefix_cache;
    /* One client has nobody to wait for; unchunked is unbounded too, that is what it is for. */
    bool is_bounded = needs->is_serving && options->chunk;
    out->target_itl_ns = is_bounded ? (int64_t)(options->target_itl_ms * 1e6) : 0;
    out->max_step_ns = is_bounded ? (int64_t)(options->max_step_ms * 1e6) : 0;
    out->calibrate_ns = needs->is_serving ? CALIBRATE_NS : 0;
    out->admission.takes_late = out->admission.has_tenants = needs->is_serving;
    out->hasty_ns = needs->is_hasty ? HASTY_NS : 0;
    return read_policy(options, out, note);
}

static enum status open_file(struct cmd_engine *opened, const char *model, struct status_note *note) {
    enum status status = cmd_model_path(model, opened->path, note);
    if (status) {
        status_note_prefix(note, model);
        return status;
    }
    status = gguf_open(&opened->gguf, opened->path, note);
    if (status) status_note_prefix(note, opened->path);
    return status;
}

/* The options of an engine on opened->gguf. */
static enum status set_options(struct cmd_engine *opened, const struct options *options,
                               const struct cmd_engine_needs *needs, struct status_note *note) {
    struct model_config config;
    enum status status = gguf_check_model_keys(opened->gguf, note);
    if (!status) status = forward_read_config(&config, opened->gguf, note);
    if (status) {
        status_note_prefix(note, opened->path);
        return status;
    }
    opened->options.has_bf16_tables = needs->has_bf16_tables;
    opened->model_max_context = config.max_context;
    status = read_numerics(options, &opened->options, note);
    if (!status && (status = kv_type_check_head(KV_OPTION, opened->options.kv_dtype, config.head_dim, note)))
        status_note_prefix(note, opened->path);
    if (!status) status = read_sizes(options, needs, config.max_context, &opened->options, note);
    if (!status) status = size_pool(opened, options, needs, &config, note);
    if (!status && needs->is_serving && cache_dir_find("cost", opened->cost_dir))
        opened->options.cost_dir = opened->cost_dir;
    if (!status && gguf_n_tensors(opened->gguf)) identify_weights(opened->gguf, opened->options.weights_id);
    return status;
}

enum status cmd_engine_open_file(struct cmd_engine *opened, const char *model, const struct options *options,
                                 const struct cmd_engine_needs *needs, struct status_note *note) {
    *opened = (struct cmd_engine){0};
    enum status status = open_file(opened, model, note);
    if (!status) status = set_options(opened, options, needs, note);
    if (status) cmd_engine_close(opened);
    return status;
}

enum status cmd_engine_look(struct cmd_engine *seen, struct gguf *gguf, const struct options *options,
                            const struct cmd_engine_needs *needs, struct status_note *note) {
    *seen = (struct cmd_engine){.gguf = gguf};
    return set_options(seen, options, needs, note);
}

enum status cmd_engine_begin(struct cmd_engine *opened, struct status_note *note) {
    opened->options.gguf = opened->gguf;
    enum status status = engine_begin(&opened->engine, &opened->options, note);
    if (status) status_note_prefix(note, opened->path);
    return status;
}

enum status cmd_engine_await(struct cmd_engine *opened, struct status_note *note) {
    enum status status = engine_await(opened->engine, note);
    if (status) status_note_prefix(note, opened->path);
    return status;
}

enum status cmd_engine_open(struct cmd_engine *opened, const char *model, const struct options *options,
                            const struct cmd_engine_needs *needs, struct status_note *note) {
    enum status status = cmd_engine_open_file(opened, model, options, needs, note);
    if (status) return status;
    status = cmd_engine_begin(opened, note);
    if (!status) status = cmd_engine_await(opened, note);
    if (status) cmd_engine_close(opened);
    return status;
}

void cmd_engine_close(struct cmd_engine *opened) {
    engine_destroy(&opened->engine);
    gguf_close(&opened->gguf);
}
