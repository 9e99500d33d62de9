#include "cmd/cmd_engine.h"

#include <string.h>

#include "base/cpu.h"
#include "base/thread_pool.h"
#include "cmd/cmd_model.h"
#include "model/forward.h"
#include "weights/gguf.h"
#include "weights/gguf_check.h"

#define DEFAULT_MAX_CONTEXT 8192

static enum status read_numerics(const struct options *options, struct engine_options *out, struct status_note *note) {
    out->tiers = cpu_detect();
    if (options->isa) {
        enum status status = cpu_mask(out->tiers, options->isa, &out->tiers, note);
        if (status) return status;
    }
    if (strcmp(options->kv_cache_dtype, "f16") == 0)
        out->kv_dtype = DTYPE_F16;
    else if (strcmp(options->kv_cache_dtype, "f32") == 0)
        out->kv_dtype = DTYPE_F32;
    else if (strcmp(options->kv_cache_dtype, "int8") == 0)
        out->kv_dtype = DTYPE_I8;
    else
        return status_fail(note, STATUS_INVALID, "--kv-cache-dtype: '%s' is unknown (known: int8, f16, f32)",
                           options->kv_cache_dtype);
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

enum status cmd_engine_check(const struct options *options, struct status_note *note) {
    struct engine_options ignored = {0};
    if (options->threads > THREAD_POOL_MAX_THREADS)
        return status_fail(note, STATUS_INVALID, "--threads: %ld is above %d", options->threads,
                           THREAD_POOL_MAX_THREADS);
    if (options->threads_decode > (options->threads ? options->threads : cpu_n_usable()))
        return status_fail(note, STATUS_INVALID, "--threads-decode: %ld is above --threads", options->threads_decode);
    if (options->block_tokens != 16 && options->block_tokens != 32 && options->block_tokens != 64)
        return status_fail(note, STATUS_INVALID, "--block-tokens: %ld is not 16, 32 or 64", options->block_tokens);
    return read_numerics(options, &ignored, note);
}

static enum status read_sizes(const struct options *options, const struct cmd_engine_needs *needs, int model_context,
                              struct engine_options *out, struct status_note *note) {
    long context = options->context;
    if (context == 0) {
        context = model_context < DEFAULT_MAX_CONTEXT ? model_context : DEFAULT_MAX_CONTEXT;
        if (needs->min_context > context && needs->min_context <= model_context) context = needs->min_context;
    }
    if (context < 1 || context > model_context)
        return status_fail(note, STATUS_INVALID, "--context: %ld is not within 1..%d, what the model was made for",
                           context, model_context);
    if (needs->min_context > context)
        return status_fail(note, STATUS_INVALID, "--context: %ld is too short, %d tokens must fit", context,
                           needs->min_context);
    out->n_threads = options->threads ? (int)options->threads : cpu_n_usable();
    out->n_decode_threads = (int)options->threads_decode;
    out->is_unpinned = options->no_pin;
    out->max_context = (int)context;
    out->max_chunk = options->chunk && options->chunk < context ? (int)options->chunk : (int)context;
    out->block_tokens = (int)options->block_tokens;
    out->max_sequences = needs->max_sequences;
    out->max_logit_rows = needs->max_logit_rows > needs->max_sequences ? needs->max_logit_rows : needs->max_sequences;
    /* One block more per sequence: the last may be partly filled. */
    out->kv_tokens = (out->max_context + out->block_tokens) * (needs->n_full ? needs->n_full : needs->max_sequences);
    out->has_prefix_cache = !options->no_prefix_cache;
    return STATUS_OK;
}

static enum status open_file(struct cmd_engine *opened, const char *model, struct model_config *out_config,
                             struct status_note *note) {
    enum status status = cmd_model_path(model, opened->path, note);
    if (status) {
        status_note_prefix(note, model);
        return status;
    }
    status = gguf_open(&opened->gguf, opened->path, note);
    if (!status) status = gguf_check_model_keys(opened->gguf, note);
    if (!status) status = forward_read_config(out_config, opened->gguf, note);
    if (status) status_note_prefix(note, opened->path);
    return status;
}

enum status cmd_engine_open_file(struct cmd_engine *opened, const char *model, const struct options *options,
                                 const struct cmd_engine_needs *needs, struct status_note *note) {
    struct model_config config;
    *opened = (struct cmd_engine){.options.has_bf16_tables = needs->has_bf16_tables};
    enum status status = read_numerics(options, &opened->options, note);
    if (!status) status = open_file(opened, model, &config, note);
    if (!status) status = read_sizes(options, needs, config.max_context, &opened->options, note);
    if (status) cmd_engine_close(opened);
    return status;
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
