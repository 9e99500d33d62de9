#include "weights/safetensors.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/file_map.h"
#include "base/mem.h"
#include "weights/name_table.h"

#define MAX_ENTRY_BYTES 4096          /* of one tensor's object: a real one has about 100 */
#define MAX_METADATA_BYTES (2u << 20) /* jansson's tree of it is at most about 15 times as large */
#define MAX_ENTRY_DEPTH 2             /* an object that holds arrays */
#define MAX_NAME_TOKEN_BYTES (6 * SAFETENSORS_MAX_NAME_BYTES + 2) /* every byte written as \u00XX, and the quotes */

#define QUOTE(name) name_table_quoted_bytes(name, strlen(name)), (name)

struct metadata {
    char *key, *text;
};

struct safetensors {
    struct file_map map; /* zero when the bytes are the caller's */
    const uint8_t *bytes;
    size_t n_bytes;
    size_t data_off;
    struct safetensors_tensor *tensors;
    size_t n_tensors, cap_tensors;
    struct metadata *metadata;
    size_t n_metadata;
    bool has_metadata;
    struct name_table table;
};

/* ---- Element types ---- */

static const struct element_type {
    const char *name;
    int n_bits;
    enum dtype dtype; /* DTYPE_N: no kernel reads it */
} element_types[] = {
    {"F64", 64, DTYPE_F64},  {"F32", 32, DTYPE_F32},      {"F16", 16, DTYPE_F16},      {"BF16", 16, DTYPE_BF16},
    {"I64", 64, DTYPE_I64},  {"I32", 32, DTYPE_I32},      {"I16", 16, DTYPE_I16},      {"I8", 8, DTYPE_I8},
    {"U64", 64, DTYPE_N},    {"U32", 32, DTYPE_N},        {"U16", 16, DTYPE_N},        {"U8", 8, DTYPE_N},
    {"BOOL", 8, DTYPE_N},    {"C64", 64, DTYPE_N},        {"F8_E4M3", 8, DTYPE_N},     {"F8_E5M2", 8, DTYPE_N},
    {"F8_E8M0", 8, DTYPE_N}, {"F8_E4M3FNUZ", 8, DTYPE_N}, {"F8_E5M2FNUZ", 8, DTYPE_N}, {"F6_E2M3", 6, DTYPE_N},
    {"F6_E3M2", 6, DTYPE_N}, {"F4", 4, DTYPE_N},
};

static const struct element_type *find_element_type(const char *name) {
    for (size_t i = 0; i < sizeof element_types / sizeof element_types[0]; i++)
        if (strcmp(element_types[i].name, name) == 0) return &element_types[i];
    return NULL;
}

/* ---- Cutting the header into entries ---- */

struct piece {
    const char *ptr;
    size_t n_bytes;
};

struct scanner {
    const char *at, *start, *end;
};

static void skip_space(struct scanner *scanner) {
    while (scanner->at < scanner->end && strchr(" \t\r\n", *scanner->at) && *scanner->at) scanner->at++;
}

static bool take_byte(struct scanner *scanner, char byte) {
    skip_space(scanner);
    if (scanner->at == scanner->end || *scanner->at != byte) return false;
    scanner->at++;
    return true;
}

/* From the opening quote to behind the closing one; what lies between is jansson's to judge. */
static bool take_text(struct scanner *scanner, struct piece *out) {
    skip_space(scanner);
    const char *start = scanner->at, *p = start;
    if (p == scanner->end || *p != '"') return false;
    for (p++; p < scanner->end && *p != '"'; p++)
        if (*p == '\\' && scanner->end - p > 1) p++;
    if (p >= scanner->end) return false;
    scanner->at = p + 1;
    *out = (struct piece){.ptr = start, .n_bytes = (size_t)(scanner->at - start)};
    return true;
}

/* From '{' to behind its '}'. False with *out_fault if it is no object, is nested too deep or does not end. */
static bool take_object(struct scanner *scanner, struct piece *out, const char **out_fault) {
    skip_space(scanner);
    const char *start = scanner->at;
    int depth = 0;
    *out_fault = "is no object";
    if (start == scanner->end || *start != '{') return false;
    while (scanner->at < scanner->end) {
        struct piece text;
        char c = *scanner->at;
        *out_fault = "has a text that does not end";
        if (c == '"') {
            if (!take_text(scanner, &text)) return false;
            continue;
        }
        scanner->at++;
        *out_fault = "is nested too deep";
        if ((c == '{' || c == '[') && ++depth > MAX_ENTRY_DEPTH) return false;
        if ((c == '}' || c == ']') && --depth == 0) {
            *out = (struct piece){.ptr = start, .n_bytes = (size_t)(scanner->at - start)};
            return true;
        }
    }
    *out_fault = "does not end";
    return false;
}

static enum status parse_piece(const struct piece *piece, const char *what, json_t **out_json,
                               struct status_note *note) {
    json_error_t error = {0};
    *out_json = json_loadb(piece->ptr, piece->n_bytes, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &error);
    if (*out_json) return STATUS_OK;
    if (!error.text[0] || json_error_code(&error) == json_error_out_of_memory)
        return status_fail(note, STATUS_NOMEM, "no memory for %s", what);
    /* jansson quotes the file in "... near '...'", control characters and all: its own words are enough. */
    const char *quote = strstr(error.text, " near ");
    return status_fail(note, STATUS_FORMAT, "%s: %.*s", what,
                       (int)(quote ? (size_t)(quote - error.text) : strlen(error.text)), error.text);
}

/* ---- One tensor's claims ---- */

static enum status read_shape(const json_t *entry, struct safetensors_tensor *tensor, uint64_t *out_n_elements,
                              struct status_note *note) {
    const json_t *shape = json_object_get(entry, "shape");
    if (!json_is_array(shape))
        return status_fail(note, STATUS_FORMAT, "tensor '%.*s': shape is no array", QUOTE(tensor->name));
    size_t n_dims = json_array_size(shape);
    if (n_dims > SAFETENSORS_MAX_DIMS)
        return status_fail(note, STATUS_FORMAT, "tensor '%.*s': shape has %zu dimensions, more than %d",
                           QUOTE(tensor->name), n_dims, SAFETENSORS_MAX_DIMS);
    tensor->n_dims = (int)n_dims;
    *out_n_elements = 1;
    for (size_t i = 0; i < SAFETENSORS_MAX_DIMS; i++) tensor->shape[i] = 1;
    for (size_t i = 0; i < n_dims; i++) {
        const json_t *item = json_array_get(shape, i);
        if (!json_is_integer(item) || json_integer_value(item) < 0)
            return status_fail(note, STATUS_FORMAT, "tensor '%.*s': shape[%zu] is no integer from 0",
                               QUOTE(tensor->name), i);
        uint64_t dim = (uint64_t)json_integer_value(item);
        /* 64 bits are the widest element: the product below times that cannot wrap. */
        if (*out_n_elements && dim > UINT64_MAX / 64 / *out_n_elements)
            return status_fail(note, STATUS_FORMAT, "tensor '%.*s': shape[%zu] %" PRIu64 " makes too many elements",
                               QUOTE(tensor->name), i, dim);
        tensor->shape[i] = dim;
        *out_n_elements *= dim;
    }
    return STATUS_OK;
}

static enum status read_type(const json_t *entry, struct safetensors_tensor *tensor, int *out_n_bits,
                             struct status_note *note) {
    const char *name = json_string_value(json_object_get(entry, "dtype"));
    if (!name) return status_fail(note, STATUS_FORMAT, "tensor '%.*s': dtype is no text", QUOTE(tensor->name));
    const struct element_type *type = find_element_type(name);
    if (!type && name_table_name_fault(name, strlen(name)))
        return status_fail(note, STATUS_FORMAT, "tensor '%.*s': dtype %s", QUOTE(tensor->name),
                           name_table_name_fault(name, strlen(name)));
    if (!type)
        return status_fail(note, STATUS_FORMAT, "tensor '%.*s': dtype '%.*s' is unknown", QUOTE(tensor->name),
                           QUOTE(name));
    tensor->type = type->name;
    tensor->is_usable = type->dtype != DTYPE_N;
    tensor->dtype = tensor->is_usable ? type->dtype : DTYPE_F32;
    *out_n_bits = type->n_bits;
    return STATUS_OK;
}

static enum status read_range(const json_t *entry, uint64_t data_bytes, struct safetensors_tensor *tensor,
                              struct status_note *note) {
    const json_t *range = json_object_get(entry, "data_offsets");
    if (!json_is_array(range) || json_array_size(range) != 2)
        return status_fail(note, STATUS_FORMAT, "tensor '%.*s': data_offsets is no pair", QUOTE(tensor->name));
    const json_t *first = json_array_get(range, 0), *second = json_array_get(range, 1);
    if (!json_is_integer(first) || !json_is_integer(second))
        return status_fail(note, STATUS_FORMAT, "tensor '%.*s': data_offsets are no integers", QUOTE(tensor->name));
    long long begin = json_integer_value(first), end = json_integer_value(second);
    if (begin < 0 || end < begin)
        return status_fail(note, STATUS_FORMAT, "tensor '%.*s': data_offsets [%lld, %lld] are no range",
                           QUOTE(tensor->name), begin, end);
    if ((uint64_t)end > data_bytes)
        return status_fail(note, STATUS_FORMAT,
                           "tensor '%.*s': data_offsets [%lld, %lld] end past the %" PRIu64
                           " bytes of data (truncated?)",
                           QUOTE(tensor->name), begin, end, data_bytes);
    tensor->begin = (uint64_t)begin;
    tensor->n_bytes = (uint64_t)(end - begin);
    return STATUS_OK;
}

static enum status read_claims(const struct safetensors *file, const json_t *entry, struct safetensors_tensor *tensor,
                               struct status_note *note) {
    uint64_t n_elements = 0;
    int n_bits = 0;
    enum status status = read_type(entry, tensor, &n_bits, note);
    if (!status) status = read_shape(entry, tensor, &n_elements, note);
    if (!status) status = read_range(entry, file->n_bytes - file->data_off, tensor, note);
    if (status) return status;
    uint64_t all_bits = n_elements * (uint64_t)n_bits;
    if (all_bits % 8 || all_bits / 8 != tensor->n_bytes)
        return status_fail(note, STATUS_FORMAT,
                           "tensor '%.*s': data_offsets hold %" PRIu64 " bytes, shape and dtype %s ask for %" PRIu64,
                           QUOTE(tensor->name), tensor->n_bytes, tensor->type, all_bits / 8);
    tensor->bytes = file->bytes + file->data_off + tensor->begin;
    return STATUS_OK;
}

/* ---- Entries ---- */

static enum status grow_tensors(struct safetensors *file, struct status_note *note) {
    if (file->n_tensors < file->cap_tensors) return STATUS_OK;
    if (file->n_tensors == SAFETENSORS_MAX_TENSORS)
        return status_fail(note, STATUS_FORMAT, "header: more than %d tensors", SAFETENSORS_MAX_TENSORS);
    size_t cap = file->cap_tensors ? file->cap_tensors * 2 : 64;
    struct safetensors_tensor *tensors = mem_resize_array(file->tensors, cap, sizeof *tensors);
    if (!tensors) return status_fail(note, STATUS_NOMEM, "no memory for %zu tensors", cap);
    file->tensors = tensors;
    file->cap_tensors = cap;
    return STATUS_OK;
}

/* name leaves with the file even on failure: close frees it. */
static enum status add_tensor(struct safetensors *file, const char *name, const struct piece *value,
                              struct status_note *note) {
    enum status status = grow_tensors(file, note);
    if (status) return status;
    struct safetensors_tensor *tensor = &file->tensors[file->n_tensors];
    *tensor = (struct safetensors_tensor){.name = mem_strdup(name)};
    if (!tensor->name) return status_fail(note, STATUS_NOMEM, "no memory for a name");
    file->n_tensors++;
    if (value->n_bytes > MAX_ENTRY_BYTES)
        return status_fail(note, STATUS_FORMAT, "tensor '%.*s': its entry has %zu bytes, more than %d", QUOTE(name),
                           value->n_bytes, MAX_ENTRY_BYTES);
    char what[160];
    snprintf(what, sizeof what, "tensor '%.*s'", QUOTE(name));
    json_t *entry;
    status = parse_piece(value, what, &entry, note);
    if (status) return status;
    status = read_claims(file, entry, tensor, note);
    json_decref(entry);
    return status;
}

static enum status copy_metadata(struct safetensors *file, json_t *object, struct status_note *note) {
    file->metadata = mem_alloc_array(json_object_size(object), sizeof *file->metadata);
    if (!file->metadata) return status_fail(note, STATUS_NOMEM, "no memory for __metadata__");
    const char *key;
    json_t *value;
    json_object_foreach(object, key, value) {
        if (!json_is_string(value))
            return status_fail(note, STATUS_FORMAT, "__metadata__: value %zu is no text", file->n_metadata);
        struct metadata *m = &file->metadata[file->n_metadata++];
        m->key = mem_strdup(key);
        m->text = mem_strdup(json_string_value(value));
        if (!m->key || !m->text) return status_fail(note, STATUS_NOMEM, "no memory for __metadata__");
    }
    return STATUS_OK;
}

static enum status add_metadata(struct safetensors *file, const struct piece *value, struct status_note *note) {
    if (file->has_metadata) return status_fail(note, STATUS_FORMAT, "__metadata__: duplicate");
    file->has_metadata = true;
    if (value->n_bytes > MAX_METADATA_BYTES)
        return status_fail(note, STATUS_FORMAT, "__metadata__: %zu bytes, more than %u", value->n_bytes,
                           MAX_METADATA_BYTES);
    json_t *object;
    enum status status = parse_piece(value, "__metadata__", &object, note);
    if (status) return status;
    status = copy_metadata(file, object, note);
    json_decref(object);
    return status;
}

static enum status read_entry(struct safetensors *file, struct scanner *scanner, struct status_note *note) {
    struct piece token, value;
    const char *fault;
    json_t *name;
    skip_space(scanner);
    size_t entry_off = (size_t)(scanner->at - scanner->start) + 8;
    if (!take_text(scanner, &token) || token.n_bytes > MAX_NAME_TOKEN_BYTES)
        return status_fail(note, STATUS_FORMAT, "header: no name of an entry at byte %zu", entry_off);
    char what[64];
    snprintf(what, sizeof what, "header: name at byte %zu", entry_off);
    enum status status = parse_piece(&token, what, &name, note);
    if (status) return status;
    const char *text = json_string_value(name);
    size_t n_bytes = json_string_length(name);
    fault = name_table_name_fault(text, n_bytes);
    if (fault || n_bytes > SAFETENSORS_MAX_NAME_BYTES)
        status = status_fail(note, STATUS_FORMAT, "%s %s", what, fault ? fault : "is too long");
    else if (!take_byte(scanner, ':'))
        status = status_fail(note, STATUS_FORMAT, "header: no ':' after '%.*s'", QUOTE(text));
    else if (!take_object(scanner, &value, &fault))
        status = status_fail(note, STATUS_FORMAT, "header: the value of '%.*s' %s", QUOTE(text), fault);
    else if (strcmp(text, "__metadata__") == 0)
        status = add_metadata(file, &value, note);
    else
        status = add_tensor(file, text, &value, note);
    json_decref(name);
    return status;
}

static enum status read_entries(struct safetensors *file, struct status_note *note) {
    struct scanner scanner = {.start = (const char *)file->bytes + 8,
                              .end = (const char *)file->bytes + file->data_off};
    scanner.at = scanner.start;
    if (scanner.at == scanner.end || *scanner.at != '{')
        return status_fail(note, STATUS_FORMAT, "header: it does not begin with '{'");
    scanner.at++;
    if (!take_byte(&scanner, '}')) {
        do {
            enum status status = read_entry(file, &scanner, note);
            if (status) return status;
        } while (take_byte(&scanner, ','));
        if (!take_byte(&scanner, '}'))
            return status_fail(note, STATUS_FORMAT, "header: no ',' or '}' at byte %zu",
                               (size_t)(scanner.at - scanner.start) + 8);
    }
    skip_space(&scanner);
    if (scanner.at != scanner.end)
        return status_fail(note, STATUS_FORMAT, "header: something follows its '}' at byte %zu",
                           (size_t)(scanner.at - scanner.start) + 8);
    return STATUS_OK;
}

/* ---- The whole ---- */

static int by_range(const void *left, const void *right) {
    const struct safetensors_tensor *a = left, *b = right;
    if (a->begin != b->begin) return a->begin < b->begin ? -1 : 1;
    return a->n_bytes < b->n_bytes ? -1 : a->n_bytes > b->n_bytes;
}

/* Sorted ranges must touch, from the first byte of the data to the last. */
static enum status check_ranges(const struct safetensors *file, struct status_note *note) {
    uint64_t covered = 0, data_bytes = file->n_bytes - file->data_off;
    for (size_t i = 0; i < file->n_tensors; i++) {
        const struct safetensors_tensor *tensor = &file->tensors[i];
        if (tensor->begin != covered)
            return status_fail(note, STATUS_FORMAT,
                               "tensor '%.*s': data_offsets begin at %" PRIu64 ", %s the %" PRIu64 " bytes before it",
                               QUOTE(tensor->name), tensor->begin,
                               tensor->begin < covered ? "an overlap with" : "a hole after", covered);
        covered += tensor->n_bytes;
    }
    if (covered != data_bytes)
        return status_fail(note, STATUS_FORMAT, "data: %" PRIu64 " trailing bytes after the last tensor",
                           data_bytes - covered);
    return STATUS_OK;
}

static enum status index_names(struct safetensors *file, struct status_note *note) {
    if (name_table_init(&file->table, file->n_tensors))
        return status_fail(note, STATUS_NOMEM, "no memory for %zu names", file->n_tensors);
    for (size_t i = 0; i < file->n_tensors; i++) {
        const char *name = file->tensors[i].name;
        if (!name_table_add(&file->table, name, (uint32_t)strlen(name), (uint32_t)i))
            return status_fail(note, STATUS_FORMAT, "tensor '%.*s': duplicate", QUOTE(name));
    }
    return STATUS_OK;
}

static enum status parse(struct safetensors *file, struct status_note *note) {
    uint64_t header_bytes;
    if (file->n_bytes < sizeof header_bytes)
        return status_fail(note, STATUS_FORMAT, "header length: the file has only %zu bytes", file->n_bytes);
    memcpy(&header_bytes, file->bytes, sizeof header_bytes);
    if (header_bytes > file->n_bytes - 8 || header_bytes > SAFETENSORS_MAX_HEADER_BYTES)
        return status_fail(note, STATUS_FORMAT, "header length: %" PRIu64 " is more than the file's %zu bytes or %d",
                           header_bytes, file->n_bytes - 8, SAFETENSORS_MAX_HEADER_BYTES);
    file->data_off = 8 + (size_t)header_bytes;
    enum status status = read_entries(file, note);
    if (status) return status;
    if (file->n_tensors) qsort(file->tensors, file->n_tensors, sizeof *file->tensors, by_range);
    status = index_names(file, note);
    return status ? status : check_ranges(file, note);
}

enum status safetensors_open_bytes(struct safetensors **out_file, const uint8_t *bytes, size_t n_bytes,
                                   struct status_note *note) {
    *out_file = NULL;
    struct safetensors *file = mem_alloc(sizeof *file);
    if (!file) return status_fail(note, STATUS_NOMEM, "no memory for the file's tables");
    file->bytes = bytes ? bytes : (const uint8_t *)"";
    file->n_bytes = bytes ? n_bytes : 0;
    enum status status = parse(file, note);
    if (status)
        safetensors_close(&file);
    else
        *out_file = file;
    return status;
}

enum status safetensors_open(struct safetensors **out_file, const char *path, struct status_note *note) {
    *out_file = NULL;
    struct file_map map;
    enum status status = file_map_open(&map, path, note);
    if (status) return status;
    status = safetensors_open_bytes(out_file, map.bytes, map.n_bytes, note);
    if (status)
        file_map_close(&map);
    else
        (*out_file)->map = map;
    return status;
}

void safetensors_close(struct safetensors **file) {
    struct safetensors *f = *file;
    if (!f) return;
    for (size_t i = 0; i < f->n_tensors; i++) mem_free((void *)(uintptr_t)f->tensors[i].name);
    for (size_t i = 0; i < f->n_metadata; i++) {
        mem_free(f->metadata[i].key);
        mem_free(f->metadata[i].text);
    }
    mem_free(f->tensors);
    mem_free(f->metadata);
    name_table_deinit(&f->table);
    file_map_close(&f->map);
    mem_free(f);
    *file = NULL;
}

/* ---- Accessors ---- */

uint64_t safetensors_file_bytes(const struct safetensors *file) {
    return file->n_bytes;
}

uint64_t safetensors_data_off(const struct safetensors *file) {
    return file->data_off;
}

size_t safetensors_n_tensors(const struct safetensors *file) {
    return file->n_tensors;
}

const struct safetensors_tensor *safetensors_tensor_at(const struct safetensors *file, size_t tensor_idx) {
    REQUIRE(tensor_idx < file->n_tensors);
    return &file->tensors[tensor_idx];
}

const struct safetensors_tensor *safetensors_tensor_find(const struct safetensors *file, const char *name) {
    uint32_t idx;
    return name_table_find(&file->table, name, strlen(name), &idx) ? &file->tensors[idx] : NULL;
}

size_t safetensors_n_metadata(const struct safetensors *file) {
    return file->n_metadata;
}

void safetensors_metadata_at(const struct safetensors *file, size_t metadata_idx, const char **out_key,
                             const char **out_text) {
    REQUIRE(metadata_idx < file->n_metadata);
    *out_key = file->metadata[metadata_idx].key;
    *out_text = file->metadata[metadata_idx].text;
}
