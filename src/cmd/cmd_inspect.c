/* inspect: what a model file holds. One JSON tree is made of it; --json prints the tree, otherwise it is laid out as
 * text. Bytes of the file reach the terminal only escaped. */
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/str.h"
#include "base/utf8.h"
#include "cmd/cmd.h"
#include "cmd/cmd_model.h"
#include "weights/weight_store.h"

#define MAX_SHOWN_ITEMS 16      /* of an array of numbers; longer ones and texts are only counted */
#define MAX_SHOWN_TEXT_BYTES 72 /* of a value in the text layout */

/* ---- Text that is safe to show ---- */

static bool is_control(uint32_t code) {
    return code < 0x20 || (code >= 0x7f && code < 0xa0) || code == 0x2028 || code == 0x2029;
}

/* Control characters as \uNNNN (or \n, \t), bytes that are no UTF-8 as \xNN. */
static void print_escaped(FILE *out, const char *text, size_t n_bytes) {
    for (size_t at = 0; at < n_bytes;) {
        uint32_t code;
        int n = utf8_decode(text + at, n_bytes - at, &code);
        if (n == 0)
            fprintf(out, "\\x%02x", (unsigned char)text[at]);
        else if (code == '\n' || code == '\t')
            fputs(code == '\n' ? "\\n" : "\\t", out);
        else if (is_control(code))
            fprintf(out, "\\u%04" PRIx32, code);
        else
            fwrite(text + at, 1, (size_t)n, out);
        at += n ? (size_t)n : 1;
    }
}

/* JSON texts must be UTF-8: anything else keeps its good characters and gets \xNN for the rest. */
static json_t *json_text(const char *text, size_t n_bytes) {
    if (utf8_valid_prefix(text, n_bytes) == n_bytes) return json_stringn(text, n_bytes);
    struct str safe;
    str_init(&safe, SIZE_MAX / 8);
    enum status status = STATUS_OK;
    for (size_t at = 0; at < n_bytes && !status;) {
        size_t n_good = utf8_valid_prefix(text + at, n_bytes - at);
        status = str_append(&safe, text + at, n_good);
        at += n_good;
        if (at < n_bytes && !status) status = str_append_fmt(&safe, "\\x%02x", (unsigned char)text[at++]);
    }
    json_t *json = status ? NULL : json_stringn(safe.ptr, safe.n_bytes);
    str_deinit(&safe);
    return json;
}

/* ---- The tree. Every maker may return NULL for want of memory; set and add pass that on as false ---- */

static bool set(json_t *object, const char *key, json_t *value) {
    return json_object_set_new(object, key, value) == 0;
}

static json_t *json_u64(uint64_t value) {
    char digits[24];
    if (value <= INT64_MAX) return json_integer((json_int_t)value);
    snprintf(digits, sizeof digits, "%" PRIu64, value); /* past JSON's integers here: as a text */
    return json_string(digits);
}

static json_t *json_number(double value) {
    return isfinite(value) ? json_real(value) : json_string(isnan(value) ? "nan" : value < 0 ? "-inf" : "inf");
}

static json_t *item_json(const struct gguf_array *array, uint64_t item_idx) {
    switch (array->item_type) {
    case GGUF_F32:
    case GGUF_F64: return json_number(gguf_array_real(array, item_idx));
    case GGUF_BOOL: return json_boolean(gguf_array_int(array, item_idx) != 0);
    case GGUF_U64: return json_u64((uint64_t)gguf_array_int(array, item_idx));
    default: return json_integer((json_int_t)gguf_array_int(array, item_idx));
    }
}

static bool set_array(json_t *entry, const struct gguf_array *array) {
    if (!set(entry, "item_type", json_string(gguf_type_name(array->item_type)))) return false;
    if (!set(entry, "n_items", json_u64(array->n_items))) return false;
    if (array->item_type == GGUF_TEXT || array->n_items > MAX_SHOWN_ITEMS) return true;
    json_t *items = json_array();
    if (!set(entry, "items", items)) return false;
    for (uint64_t i = 0; i < array->n_items; i++)
        if (json_array_append_new(items, item_json(array, i))) return false;
    return true;
}

/* A scalar as an array of one: the same path for every number. */
static bool set_value(json_t *entry, const struct gguf *gguf, const char *key, enum gguf_type type) {
    struct gguf_array array;
    struct gguf_text text;
    if (type == GGUF_ARRAY) return gguf_get_array(gguf, key, &array, NULL) == STATUS_OK && set_array(entry, &array);
    if (type == GGUF_TEXT)
        return gguf_get_text(gguf, key, &text, NULL) == STATUS_OK &&
               set(entry, "value", json_text(text.ptr, text.n_bytes));
    return gguf_get_scalar(gguf, key, &array, NULL) == STATUS_OK && set(entry, "value", item_json(&array, 0));
}

static json_t *gguf_keys_json(const struct gguf *gguf) {
    json_t *keys = json_array();
    bool ok = keys != NULL;
    for (size_t i = 0; i < gguf_n_keys(gguf) && ok; i++) {
        enum gguf_type type;
        struct gguf_text name = gguf_key(gguf, i, &type);
        char *key = mem_strndup(name.ptr, name.n_bytes);
        json_t *entry = json_object();
        ok = json_array_append_new(keys, entry) == 0 && key && set(entry, "key", json_string(key)) &&
             set(entry, "type", json_string(gguf_type_name(type))) && set_value(entry, gguf, key, type);
        mem_free(key);
    }
    if (ok) return keys;
    json_decref(keys);
    return NULL;
}

static json_t *metadata_json(const struct safetensors *file) {
    json_t *keys = json_array();
    bool ok = keys != NULL;
    for (size_t i = 0; i < safetensors_n_metadata(file) && ok; i++) {
        const char *key, *text;
        safetensors_metadata_at(file, i, &key, &text);
        json_t *entry = json_object();
        ok = json_array_append_new(keys, entry) == 0 && set(entry, "key", json_string(key)) &&
             set(entry, "type", json_string("TEXT")) && set(entry, "value", json_string(text));
    }
    if (ok) return keys;
    json_decref(keys);
    return NULL;
}

/* A row of the tensor table, whatever the format. */
struct row {
    const char *name;
    size_t name_bytes;
    const char *type;
    int n_dims;
    const uint64_t *dims; /* in the file's order */
    uint64_t n_bytes, file_off;
};

static struct row row_at(const struct weight_store *store, size_t tensor_idx) {
    const struct gguf *gguf = weight_store_gguf(store);
    if (gguf) {
        const struct gguf_tensor *t = gguf_tensor_at(gguf, tensor_idx);
        return (struct row){t->name.ptr, t->name.n_bytes, dtype_name(t->dtype), t->n_dims,
                            t->dims,     t->n_bytes,      t->file_off};
    }
    const struct safetensors *file = weight_store_safetensors(store);
    const struct safetensors_tensor *t = safetensors_tensor_at(file, tensor_idx);
    return (struct row){
        t->name, strlen(t->name), t->type, t->n_dims, t->shape, t->n_bytes, safetensors_data_off(file) + t->begin};
}

static uint64_t n_elements(const struct row *row) {
    uint64_t n = 1;
    for (int i = 0; i < row->n_dims; i++) n *= row->dims[i]; /* the readers have checked the product */
    return n;
}

static json_t *row_json(const struct row *row) {
    json_t *entry = json_object(), *shape = json_array();
    bool ok = set(entry, "name", json_text(row->name, row->name_bytes)) && set(entry, "type", json_string(row->type));
    for (int i = 0; i < row->n_dims && ok; i++) ok = json_array_append_new(shape, json_u64(row->dims[i])) == 0;
    ok = set(entry, "shape", shape) && ok && set(entry, "bytes", json_u64(row->n_bytes)) &&
         set(entry, "offset", json_u64(row->file_off));
    if (ok) return entry;
    json_decref(entry);
    return NULL;
}

static bool add_to(json_t *object, const char *key, uint64_t more) {
    return set(object, key, json_integer(json_integer_value(json_object_get(object, key)) + (json_int_t)more));
}

/* totals: an object by type name, so that the order is that of first use. */
static bool add_to_totals(json_t *totals, const struct row *row) {
    json_t *total = json_object_get(totals, row->type);
    if (!total) {
        total = json_object();
        if (!set(totals, row->type, total)) return false;
    }
    return add_to(total, "n_tensors", 1) && add_to(total, "n_parameters", n_elements(row)) &&
           add_to(total, "bytes", row->n_bytes);
}

static bool set_tensors(json_t *tree, const struct weight_store *store) {
    json_t *tensors = json_array(), *totals = json_object();
    uint64_t n_parameters = 0;
    bool ok = tensors && totals;
    for (size_t i = 0; i < weight_store_n_tensors(store) && ok; i++) {
        struct row row = row_at(store, i);
        n_parameters += n_elements(&row);
        ok = json_array_append_new(tensors, row_json(&row)) == 0 && add_to_totals(totals, &row);
    }
    ok = set(tree, "n_tensors", json_u64(weight_store_n_tensors(store))) && ok;
    ok = set(tree, "n_parameters", json_u64(n_parameters)) && ok;
    ok = set(tree, "types", totals) && ok;
    return set(tree, "tensors", tensors) && ok;
}

static bool set_head(json_t *tree, const char *path, const struct weight_store *store) {
    const struct gguf *gguf = weight_store_gguf(store);
    const struct safetensors *file = weight_store_safetensors(store);
    struct gguf_text text;
    bool ok = set(tree, "file", json_text(path, strlen(path))) &&
              set(tree, "format", json_string(gguf ? "GGUF" : "safetensors"));
    if (!gguf) return ok && set(tree, "file_bytes", json_u64(safetensors_file_bytes(file)));
    ok = ok && set(tree, "version", json_u64(gguf_version(gguf)));
    if (ok && gguf_get_text(gguf, "general.architecture", &text, NULL) == STATUS_OK)
        ok = set(tree, "architecture", json_text(text.ptr, text.n_bytes));
    return ok && set(tree, "file_bytes", json_u64(gguf_file_bytes(gguf))) &&
           set(tree, "alignment_bytes", json_u64(gguf_alignment_bytes(gguf)));
}

static json_t *make_tree(const char *path, const struct weight_store *store) {
    const struct gguf *gguf = weight_store_gguf(store);
    json_t *tree = json_object();
    if (tree && set_head(tree, path, store) &&
        set(tree, "keys", gguf ? gguf_keys_json(gguf) : metadata_json(weight_store_safetensors(store))) &&
        set_tensors(tree, store))
        return tree;
    json_decref(tree);
    return NULL;
}

/* ---- --json ---- */

/* jansson escapes all control characters but DEL, which in its output can only stand inside a text. */
static int write_chunk(const char *bytes, size_t n_bytes, void *out) {
    for (size_t at = 0; at < n_bytes;) {
        const char *del = memchr(bytes + at, 0x7f, n_bytes - at);
        size_t n = del ? (size_t)(del - bytes) - at : n_bytes - at;
        if (fwrite(bytes + at, 1, n, out) != n) return -1;
        if (del) fputs("\\u007f", out);
        at += n + (del != NULL);
    }
    return 0;
}

/* ---- Text ---- */

static const char *text_of(const json_t *object, const char *key) {
    const char *text = json_string_value(json_object_get(object, key));
    return text ? text : "";
}

static long long int_of(const json_t *object, const char *key) {
    return json_integer_value(json_object_get(object, key));
}

static void print_value(const json_t *value) {
    if (json_is_string(value)) {
        const char *text = json_string_value(value);
        size_t n = json_string_length(value), n_shown = n;
        if (n > MAX_SHOWN_TEXT_BYTES) n_shown = utf8_valid_prefix(text, MAX_SHOWN_TEXT_BYTES);
        putchar('"');
        print_escaped(stdout, text, n_shown);
        putchar('"');
        if (n_shown < n) printf("... (%zu bytes)", n);
    } else if (json_is_real(value)) {
        printf("%.9g", json_real_value(value));
    } else if (json_is_boolean(value)) {
        fputs(json_is_true(value) ? "true" : "false", stdout);
    } else {
        printf("%lld", (long long)json_integer_value(value));
    }
}

static void print_items(const json_t *items) {
    putchar('[');
    for (size_t i = 0; i < json_array_size(items); i++) {
        if (i) fputs(", ", stdout);
        print_value(json_array_get(items, i));
    }
    putchar(']');
}

static void print_key(const json_t *entry) {
    const json_t *items = json_object_get(entry, "items");
    const char *key = text_of(entry, "key"); /* safetensors' metadata keys are free text */
    fputs("  ", stdout);
    print_escaped(stdout, key, strlen(key));
    printf("%*s ", strlen(key) < 44 ? 44 - (int)strlen(key) : 0, "");
    if (items)
        print_items(items);
    else if (json_object_get(entry, "n_items"))
        printf("array of %lld %s", int_of(entry, "n_items"),
               strcmp(text_of(entry, "item_type"), "TEXT") == 0 ? "texts" : text_of(entry, "item_type"));
    else
        print_value(json_object_get(entry, "value"));
    putchar('\n');
}

static void print_tensor(const json_t *entry) {
    char shape[128];
    size_t n = 0;
    const json_t *dims = json_object_get(entry, "shape");
    for (size_t i = 0; i < json_array_size(dims) && n < sizeof shape - 24; i++)
        n += (size_t)snprintf(shape + n, sizeof shape - n, "%s%lld", i ? " x " : "",
                              (long long)json_integer_value(json_array_get(dims, i)));
    shape[n] = 0;
    printf("  %-44s %-8s %-20s %14lld %14lld\n", text_of(entry, "name"), text_of(entry, "type"), shape,
           int_of(entry, "bytes"), int_of(entry, "offset"));
}

static void print_text(const json_t *tree) {
    printf("%-16s ", "file");
    print_escaped(stdout, text_of(tree, "file"), strlen(text_of(tree, "file")));
    printf("\n%-16s %s", "format", text_of(tree, "format"));
    if (json_object_get(tree, "version")) printf(" version %lld", int_of(tree, "version"));
    const json_t *architecture = json_object_get(tree, "architecture");
    if (architecture) printf("\n%-16s %s", "architecture", json_string_value(architecture));
    printf("\n%-16s %lld\n%-16s %lld\n", "file bytes", int_of(tree, "file_bytes"), "parameters",
           int_of(tree, "n_parameters"));
    size_t i;
    json_t *entry, *keys = json_object_get(tree, "keys"), *tensors = json_object_get(tree, "tensors");
    printf("\nkeys: %zu\n", json_array_size(keys));
    json_array_foreach(keys, i, entry) print_key(entry);
    printf("\ntensors: %zu\n", json_array_size(tensors));
    if (json_array_size(tensors)) printf("  %-44s %-8s %-20s %14s %14s\n", "name", "type", "shape", "bytes", "offset");
    json_array_foreach(tensors, i, entry) print_tensor(entry);
    printf("\ntypes\n");
    const char *type;
    json_object_foreach(json_object_get(tree, "types"), type, entry)
        printf("  %-8s %8lld tensors %16lld parameters %16lld bytes\n", type, int_of(entry, "n_tensors"),
               int_of(entry, "n_parameters"), int_of(entry, "bytes"));
}

int cmd_inspect(const struct options *options, int n_words, const char **words) {
    if (n_words != 1) return cmd_usage("inspect", n_words ? "one MODEL at a time" : "which MODEL?");
    char path[CMD_MODEL_MAX_PATH_BYTES];
    struct status_note note = {0};
    struct weight_store *store;
    enum status status = cmd_model_path(words[0], path, &note);
    if (status) return cmd_fail(words[0], status, &note);
    status = weight_store_open(&store, path, &note);
    if (status) return cmd_fail(path, status, &note);
    json_t *tree = make_tree(path, store);
    int exit_code = 0;
    if (!tree) {
        exit_code = cmd_fail(path, STATUS_NOMEM, NULL);
    } else if (options->json) {
        if (json_dump_callback(tree, write_chunk, stdout, JSON_INDENT(1) | JSON_ENSURE_ASCII | JSON_REAL_PRECISION(9)))
            exit_code = cmd_fail(path, STATUS_IO, NULL);
        putchar('\n');
    } else {
        print_text(tree);
    }
    json_decref(tree);
    weight_store_close(&store);
    return exit_code;
}
