#include "cmd/reference.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include <jansson.h>

#include "base/mem.h"

#define MAX_TOKENS (1 << 20)
#define MAX_PATH_BYTES 4096

/* Largest mean KL per model of golden/README.md, float and int8 attention; tests/bounds.json has the same. */
static const struct {
    const char *model;
    double max_kl, max_kl_int8_kv;
} kl_bounds[] = {{"smollm2", 0.0037, 0.0042}, {"gemma3-270m", 0.0080, 0.0092}};

struct loader {
    struct reference *reference;
    const char *path;
    struct status_note *note;
};

static enum status bad_field(struct loader *loader, const char *field, const char *why) {
    return status_fail(loader->note, STATUS_FORMAT, "field %s: %s", field, why);
}

/* A file beside the reference itself. */
static void path_beside(const struct loader *loader, const char *name, char out[MAX_PATH_BYTES]) {
    const char *slash = strrchr(loader->path, '/');
    snprintf(out, MAX_PATH_BYTES, "%.*s%s", slash ? (int)(slash + 1 - loader->path) : 0, loader->path, name);
}

/* Appends a JSON array of token ids to out[n_before...]. */
static enum status read_ids(struct loader *loader, const json_t *array, const char *field, int n_before, uint32_t **out,
                            int *out_n) {
    size_t n = json_array_size(array);
    if (!json_is_array(array) || n > MAX_TOKENS) return bad_field(loader, field, "not an array of token ids");
    uint32_t *ids = mem_resize_array(*out, (size_t)n_before + n, sizeof *ids);
    if (!ids) return status_fail(loader->note, STATUS_NOMEM, "no memory for %zu ids", n);
    *out = ids;
    for (size_t i = 0; i < n; i++) {
        const json_t *id = json_array_get(array, i);
        if (!json_is_integer(id) || json_integer_value(id) < 0 || json_integer_value(id) > INT32_MAX)
            return bad_field(loader, field, "holds something that is no token id");
        ids[(size_t)n_before + i] = (uint32_t)json_integer_value(id);
    }
    *out_n = (int)n;
    return STATUS_OK;
}

static enum status read_logits(struct loader *loader, const json_t *json, struct reference_case *item) {
    char path[MAX_PATH_BYTES];
    const char *name = json_string_value(json_object_get(json, "logits_file"));
    json_int_t n_rows = json_integer_value(json_object_get(json, "logits_rows"));
    json_int_t n_cols = json_integer_value(json_object_get(json, "logits_cols"));
    if (!name) return STATUS_OK;
    if (n_rows < 1 || n_rows > item->n_prompt || n_cols < 1 || n_cols > INT32_MAX)
        return bad_field(loader, "logits_rows", "does not fit the prompt");
    path_beside(loader, name, path);
    enum status status = file_map_open(&item->logits_file, path, loader->note);
    if (status) {
        status_note_prefix(loader->note, name);
        return status;
    }
    if (item->logits_file.n_bytes != (size_t)n_rows * (size_t)n_cols * sizeof(float))
        return bad_field(loader, "logits_file", "its size is not rows x cols floats");
    item->logits = (const float *)item->logits_file.bytes;
    item->n_logit_rows = (int)n_rows;
    loader->reference->n_vocab = (int)n_cols;
    return STATUS_OK;
}

static enum status read_case(struct loader *loader, const json_t *json, const char *prompt_field,
                             struct reference_case *item) {
    const json_t *gaps = json_object_get(json, "greedy_top2_gap");
    enum status status =
        read_ids(loader, json_object_get(json, prompt_field), prompt_field, 0, &item->tokens, &item->n_prompt);
    if (!status)
        status =
            read_ids(loader, json_object_get(json, "greedy"), "greedy", item->n_prompt, &item->tokens, &item->n_greedy);
    if (status) return status;
    if (item->n_prompt < 1) return bad_field(loader, prompt_field, "is empty");
    if (json_array_size(gaps) != (size_t)item->n_greedy)
        return bad_field(loader, "greedy_top2_gap", "is not as long as greedy");
    item->gaps = mem_alloc_array((size_t)item->n_greedy, sizeof *item->gaps);
    if (!item->gaps) return status_fail(loader->note, STATUS_NOMEM, "no memory for %d gaps", item->n_greedy);
    for (int i = 0; i < item->n_greedy; i++) item->gaps[i] = json_number_value(json_array_get(gaps, (size_t)i));
    return read_logits(loader, json, item);
}

static enum status read_cases(struct loader *loader, const json_t *cases, const char *prompt_field) {
    struct reference *reference = loader->reference;
    size_t n = json_array_size(cases);
    reference->cases = mem_alloc_array(n, sizeof *reference->cases);
    if (!reference->cases) return status_fail(loader->note, STATUS_NOMEM, "no memory for %zu cases", n);
    enum status status = STATUS_OK;
    for (size_t i = 0; i < n && !status; i++)
        status = read_case(loader, json_array_get(cases, i), prompt_field, &reference->cases[reference->n_cases++]);
    return status;
}

static enum status read_text(struct loader *loader, const json_t *root) {
    const json_t *ids = json_object_get(json_object_get(root, "perplexity"), "ids");
    return read_ids(loader, ids, "perplexity.ids", 0, &loader->reference->text, &loader->reference->n_text);
}

/* NAME.logprobs.json: positions and the file with their distributions; the text is in NAME.json. */
static enum status read_logprobs(struct loader *loader, const json_t *root) {
    struct reference *reference = loader->reference;
    char stem[MAX_PATH_BYTES], path[MAX_PATH_BYTES + 32];
    json_int_t n_cols = json_integer_value(json_object_get(root, "cols"));
    const json_t *positions = json_object_get(root, "positions");
    size_t n = json_array_size(positions);
    if (n < 1 || n > MAX_TOKENS || n_cols < 1 || n_cols > INT32_MAX)
        return bad_field(loader, "positions", "are missing");
    snprintf(stem, sizeof stem, "%.*s", (int)(strlen(loader->path) - strlen(".logprobs.json")), loader->path);
    snprintf(path, sizeof path, "%s.json", stem);
    json_error_t error;
    json_t *whole = json_load_file(path, JSON_REJECT_DUPLICATES, &error);
    if (!whole) return status_fail(loader->note, STATUS_IO, "%s beside it: %s", path, error.text);
    enum status status = read_text(loader, whole);
    json_decref(whole);
    if (status) return status;
    reference->positions = mem_alloc_array(n, sizeof *reference->positions);
    if (!reference->positions) return status_fail(loader->note, STATUS_NOMEM, "no memory for %zu positions", n);
    for (size_t i = 0; i < n; i++) {
        json_int_t position = json_integer_value(json_array_get(positions, i));
        if (position < 0 || position >= reference->n_text)
            return bad_field(loader, "positions", "one is outside the text");
        reference->positions[i] = (int)position;
    }
    snprintf(path, sizeof path, "%s.logprobs.f16", stem);
    status = file_map_open(&reference->logprobs_file, path, loader->note);
    if (status) return status;
    if (reference->logprobs_file.n_bytes != n * (size_t)n_cols * sizeof(uint16_t))
        return bad_field(loader, "rows", "the .f16 file's size is not rows x cols");
    reference->logprobs = (const uint16_t *)reference->logprobs_file.bytes;
    reference->n_positions = (int)n;
    reference->n_vocab = (int)n_cols;
    const char *slash = strrchr(stem, '/');
    for (size_t i = 0; i < sizeof kl_bounds / sizeof kl_bounds[0]; i++) {
        if (strcmp(slash ? slash + 1 : stem, kl_bounds[i].model) != 0) continue;
        reference->max_kl = kl_bounds[i].max_kl;
        reference->max_kl_int8_kv = kl_bounds[i].max_kl_int8_kv;
    }
    return STATUS_OK;
}

static bool ends_in(const char *text, const char *end) {
    size_t n_text = strlen(text), n_end = strlen(end);
    return n_text > n_end && strcmp(text + n_text - n_end, end) == 0;
}

static enum status read_root(struct loader *loader, const json_t *root) {
    const char *made_by = json_string_value(json_object_get(root, "reference"));
    struct reference *reference = loader->reference;
    /* A model cast to bf16 takes its frequency table along; shown by golden's tiny models: docs/decisions/eval.md */
    reference->has_bf16_tables = made_by && strstr(made_by, "on bf16-rounded weights") != NULL;
    if (ends_in(loader->path, ".logprobs.json")) {
        reference->kind = REFERENCE_LOGPROBS;
        return read_logprobs(loader, root);
    }
    if (json_is_array(json_object_get(root, "cases"))) {
        reference->kind = REFERENCE_TINY;
        return read_cases(loader, json_object_get(root, "cases"), "prompt");
    }
    if (!json_is_array(json_object_get(root, "prompts"))) return bad_field(loader, "prompts or cases", "is missing");
    reference->kind = REFERENCE_REAL;
    enum status status = read_cases(loader, json_object_get(root, "prompts"), "ids");
    return status ? status : read_text(loader, root);
}

enum status reference_load(struct reference **out_reference, const char *path, struct status_note *note) {
    struct reference *reference = mem_alloc(sizeof *reference);
    json_error_t error;
    *out_reference = NULL;
    if (!reference) return status_fail(note, STATUS_NOMEM, "no memory for the reference");
    reference->max_kl = reference->max_kl_int8_kv = NAN;
    json_t *root = json_load_file(path, JSON_REJECT_DUPLICATES, &error);
    struct loader loader = {reference, path, note};
    enum status status = root ? read_root(&loader, root) : status_fail(note, STATUS_FORMAT, "%s", error.text);
    json_decref(root);
    *out_reference = reference;
    if (status) reference_free(out_reference);
    return status;
}

void reference_free(struct reference **reference_ptr) {
    struct reference *reference = *reference_ptr;
    if (!reference) return;
    for (int i = 0; i < reference->n_cases; i++) {
        mem_free(reference->cases[i].tokens);
        mem_free(reference->cases[i].gaps);
        file_map_close(&reference->cases[i].logits_file);
    }
    file_map_close(&reference->logprobs_file);
    mem_free(reference->cases);
    mem_free(reference->text);
    mem_free(reference->positions);
    mem_free(reference);
    *reference_ptr = NULL;
}

int reference_max_tokens(const struct reference *reference) {
    int max = reference->n_text;
    for (int i = 0; i < reference->n_cases; i++) {
        int n = reference->cases[i].n_prompt + reference->cases[i].n_greedy;
        if (n > max) max = n;
    }
    return max;
}
