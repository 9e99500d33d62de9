/* plan: what a model needs and what one may expect of it, from its header alone. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cpu.h"
#include "base/mem.h"
#include "cmd/cmd.h"
#include "cmd/cmd_engine.h"
#include "cmd/cmd_model.h"
#include "cmd/kv_type.h"
#include "cmd/plan_sheet.h"
#include "cmd/plan_verify.h"
#include "weights/hf_config.h"

#define DEFAULT_MAX_TOKENS 8192
#define MAX_TOKENS (1 << 28)
#define MAX_CHUNK 512 /* as kvick serve has it by default */
#define MAX_SESSIONS 1000000
#define MAX_MEMORY_BYTES 1e18
#define KV_OPTION "--kv"

/* "24G", "512M", "1.5T" or bytes. */
static enum status read_size(const char *text, double *out_bytes, struct status_note *note) {
    static const char units[] = "KMGT";
    char *end;
    double value = strtod(text, &end), unit = 1;
    const char *found = *end ? strchr(units, *end) : NULL;
    if (end != text && found) {
        for (const char *at = units; at <= found; at++) unit *= 1024;
        end++;
    }
    if (end == text || *end || !(value * unit >= 1) || value * unit > MAX_MEMORY_BYTES)
        return status_fail(note, STATUS_INVALID, "--memory: '%s' is no size (as 24G or 512M)", text);
    *out_bytes = value * unit;
    return STATUS_OK;
}

static enum status check(const struct options *options, int n_words, const char **words, struct status_note *note) {
    if (!n_words && !options->shape) return status_fail(note, STATUS_INVALID, "which MODEL? (or --shape)");
    if (n_words + (options->shape != NULL) > PLAN_SHEET_MAX_MODELS)
        return status_fail(note, STATUS_INVALID, "%d models, at most %d stand side by side",
                           n_words + (options->shape != NULL), PLAN_SHEET_MAX_MODELS);
    if (options->ctx < 0 || options->ctx > MAX_TOKENS)
        return status_fail(note, STATUS_INVALID, "--ctx: %ld is not within 0..%d", options->ctx, MAX_TOKENS);
    if (options->sessions < 1 || options->sessions > MAX_SESSIONS)
        return status_fail(note, STATUS_INVALID, "--sessions: %ld is not within 1..%d", options->sessions,
                           MAX_SESSIONS);
    if (options->target_ttft_ms <= 0 || options->target_itl_ms <= 0)
        return status_fail(note, STATUS_INVALID, "--target-ttft-ms and --target-itl-ms must be above 0");
    if (options->verify && (n_words != 1 || options->shape || options->hw || hf_config_is_path(words[0])))
        return status_fail(note, STATUS_INVALID, "--verify loads one GGUF model, on this machine");
    if (options->block_tokens != 16 && options->block_tokens != 32 && options->block_tokens != 64)
        return status_fail(note, STATUS_INVALID, "--block-tokens: %ld is not 16, 32 or 64", options->block_tokens);
    return STATUS_OK;
}

/* ---- models ---- */

static void name_by_file(struct model_sizes *sizes, const char *path) {
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/') n--;
    size_t from = n;
    while (from && path[from - 1] != '/') from--;
    if (!sizes->name[0]) snprintf(sizes->name, sizeof sizes->name, "%.*s", (int)(n - from), path + from);
}

/* out_cost: what its steps cost on this machine, if that was measured (*out_has_cost). */
static enum status read_model(struct model_sizes *sizes, const char *word, const struct options *options,
                              struct step_cost *out_cost, bool *out_has_cost, struct status_note *note) {
    char path[CMD_MODEL_MAX_PATH_BYTES];
    struct gguf *gguf;
    if (hf_config_is_path(word)) {
        enum status status = hf_config_read(sizes, word, note);
        if (!status) name_by_file(sizes, word);
        return status;
    }
    enum status status = cmd_model_path(word, path, note);
    if (status) {
        status_note_prefix(note, word);
        return status;
    }
    status = gguf_open(&gguf, path, note);
    if (!status) {
        status = model_sizes_from_gguf(sizes, gguf, note);
        *out_has_cost = !status && !options->hw && plan_verify_find_cost(options, gguf, out_cost);
        gguf_close(&gguf);
    }
    if (status) status_note_prefix(note, path);
    if (!status) name_by_file(sizes, path);
    return status;
}

static enum status read_shape(struct model_sizes *sizes, const char *text, struct status_note *note) {
    struct model_shape shape;
    enum status status;
    if (strchr(text, '=')) {
        status = model_sizes_from_text(sizes, text, note);
    } else {
        status = model_shape_find(text, &shape, note);
        if (!status) model_sizes_from_shape(sizes, &shape);
    }
    if (status) status_note_prefix(note, "--shape");
    return status;
}

static enum status add_models(struct plan_sheet *sheet, struct model_sizes *models, struct step_cost *costs,
                              const struct options *options, int n_words, const char **words,
                              struct status_note *note) {
    enum status status = STATUS_OK;
    sheet->n_models = 0;
    for (int i = 0; i < n_words + (options->shape != NULL) && !status; i++) {
        struct model_sizes *sizes = &models[i];
        bool has_cost = false;
        status = i < n_words ? read_model(sizes, words[i], options, &costs[i], &has_cost, note)
                             : read_shape(sizes, options->shape, note);
        if (status) return status;
        sheet->costs[i] = has_cost ? &costs[i] : NULL;
        long n_tokens = options->ctx ? options->ctx : DEFAULT_MAX_TOKENS;
        if (sizes->max_context && n_tokens > sizes->max_context) {
            if (options->ctx)
                return status_fail(note, STATUS_INVALID, "--ctx: %ld is above %d, what %s was made for", n_tokens,
                                   sizes->max_context, sizes->name);
            n_tokens = sizes->max_context;
        }
        status = kv_type_check_sizes(KV_OPTION, sheet->kv_dtype, sizes, note);
        sheet->models[i] = sizes;
        sheet->n_tokens[i] = (int)n_tokens;
        sheet->n_models++;
    }
    return status;
}

/* ---- machine ---- */

static enum status set_machine(struct plan_sheet *sheet, const struct options *options, struct capacity_limits *limits,
                               struct status_note *note) {
    int n_threads = options->threads ? (int)options->threads : cpu_n_usable();
    capacity_read_limits(limits, "");
    /* A plan is there at once; only who verifies waits for a reading. */
    size_t to_read_in = options->verify ? limits->memory_bytes : 0;
    enum status status = options->hw ? hw_rates_find(&sheet->rates, options->hw, note)
                                     : hw_rates_of_this(&sheet->rates, n_threads, cpu_detect(), to_read_in, note);
    if (status) {
        if (options->hw) status_note_prefix(note, "--hw");
        return status;
    }
    if (options->memory) {
        sheet->memory_source = "--memory";
        return read_size(options->memory, &sheet->memory_bytes, note);
    }
    if (sheet->rates.memory_gb > 0) {
        sheet->memory_source = "of the machine";
        sheet->memory_bytes = sheet->rates.memory_gb * 1e9 * (1 - CAPACITY_MARGIN_SHARE);
        return STATUS_OK;
    }
    if (options->hw) return status_fail(note, STATUS_INVALID, "--hw: %s has no memory_gb (--memory)", options->hw);
    sheet->memory_source = limits->memory_source;
    sheet->memory_bytes = (double)limits->memory_bytes * (1 - CAPACITY_MARGIN_SHARE);
    return STATUS_OK;
}

int cmd_plan(const struct options *options, int n_words, const char **words) {
    struct plan_sheet sheet = {.kv_name = options->kv,
                               .block_tokens = (int)options->block_tokens,
                               .n_sessions = (int)options->sessions,
                               .max_chunk = MAX_CHUNK,
                               .limits.max_step_ns = (int64_t)(options->max_step_ms * 1e6),
                               .target_ttft_ms = options->target_ttft_ms,
                               .target_itl_ms = options->target_itl_ms};
    struct status_note note = {0};
    struct capacity_limits limits;
    struct step_cost costs[PLAN_SHEET_MAX_MODELS];
    enum status status = check(options, n_words, words, &note);
    if (!status) status = kv_type_parse(KV_OPTION, options->kv, &sheet.kv_dtype, &note);
    if (status) return cmd_usage("plan", "%s", note.text);
    struct model_sizes *models = mem_alloc_array(PLAN_SHEET_MAX_MODELS, sizeof *models);
    if (!models) return cmd_fail("plan", STATUS_NOMEM, NULL);
    status = add_models(&sheet, models, costs, options, n_words, words, &note);
    if (!status) status = set_machine(&sheet, options, &limits, &note);
    if (!status && options->json)
        status = plan_sheet_print_json(stdout, &sheet);
    else if (!status)
        plan_sheet_print(stdout, &sheet);
    int exit_code = status ? cmd_fail(NULL, status, &note) : 0;
    if (!status && options->verify) exit_code = plan_verify_run(options, words[0], &models[0], sheet.n_tokens[0]);
    mem_free(models);
    return exit_code;
}
