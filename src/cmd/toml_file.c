#include "cmd/toml_file.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"

const char *toml_file_form_name(enum toml_file_form form) {
    static const char *const names[] = {
        [TOML_FILE_TABLE] = "a table",   [TOML_FILE_TEXT] = "a text",        [TOML_FILE_WHOLE] = "a whole number",
        [TOML_FILE_REAL] = "a fraction", [TOML_FILE_FLAG] = "true or false", [TOML_FILE_LIST] = "a list",
        [TOML_FILE_DATE] = "a date"};
    return names[form];
}

#ifdef KVICK_BRIDGE

#include "kvick_bridge.h"

static enum status read_bytes(const char *path, char **out_bytes, size_t *out_n, struct status_note *note) {
    FILE *stream = fopen(path, "re");
    if (!stream) return status_fail(note, STATUS_IO, "%s: %s", path, strerror(errno));
    char *bytes = mem_alloc(TOML_FILE_MAX_BYTES + 1);
    enum status status = bytes ? STATUS_OK : status_fail(note, STATUS_NOMEM, "%s: no memory to read it", path);
    size_t n = bytes ? fread(bytes, 1, TOML_FILE_MAX_BYTES + 1, stream) : 0;
    if (!status && ferror(stream)) status = status_fail(note, STATUS_IO, "%s: %s", path, strerror(errno));
    if (!status && n > TOML_FILE_MAX_BYTES)
        status = status_fail(note, STATUS_LIMIT, "%s: longer than %zu bytes", path, TOML_FILE_MAX_BYTES);
    fclose(stream);
    if (status) {
        mem_free(bytes);
        return status;
    }
    *out_bytes = bytes;
    *out_n = n;
    return STATUS_OK;
}

static enum status copy_items(struct toml_file *file, const struct kvick_bridge_toml *toml) {
    file->items = mem_alloc_array(toml->n_items, sizeof *file->items);
    if (!file->items) return STATUS_NOMEM;
    file->n_items = toml->n_items;
    for (size_t i = 0; i < toml->n_items; i++) {
        const struct kvick_bridge_toml_item *from = &toml->items[i];
        file->items[i] = (struct toml_file_item){
            from->table,          from->table_idx, from->key, from->text, (enum toml_file_form)from->form,
            from->is_listed != 0, from->line};
    }
    return STATUS_OK;
}

enum status toml_file_open(struct toml_file *file, const char *path, struct status_note *note) {
    char *bytes = NULL, words[STATUS_NOTE_MAX_BYTES] = "";
    size_t n_bytes = 0;
    *file = (struct toml_file){0};
    enum status status = read_bytes(path, &bytes, &n_bytes, note);
    if (status) return status;
    struct kvick_bridge_toml *toml = mem_alloc(sizeof *toml);
    int code = toml ? kvick_bridge_toml_read(toml, bytes, n_bytes, words, sizeof words) : KVICK_BRIDGE_OK;
    mem_free(bytes);
    if (toml && code == KVICK_BRIDGE_OK) {
        file->bridge = toml;
        status = copy_items(file, toml);
        if (!status) return STATUS_OK;
    }
    toml_file_close(file);
    if (code == KVICK_BRIDGE_OK) return status_fail(note, STATUS_NOMEM, "%s: no memory to read it", path);
    mem_free(toml);
    if (code == KVICK_BRIDGE_SYNTAX) return status_fail(note, STATUS_FORMAT, "%s:%s", path, words);
    return status_fail(note, STATUS_NOMEM, "%s: %s", path, words);
}

void toml_file_close(struct toml_file *file) {
    if (file->bridge) kvick_bridge_toml_free(file->bridge);
    mem_free(file->bridge);
    mem_free(file->items);
    *file = (struct toml_file){0};
}

#else

enum status toml_file_open(struct toml_file *file, const char *path, struct status_note *note) {
    *file = (struct toml_file){0};
    return status_fail(note, STATUS_INVALID, "%s: this kvick was built without the Rust bridge and reads no TOML",
                       path);
}

void toml_file_close(struct toml_file *file) {
    *file = (struct toml_file){0};
}

#endif
