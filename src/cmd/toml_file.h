/* toml_file: a TOML file as a flat list of values with their lines, read by the bridge.
 *
 * Thread: main.   Memory: the texts live until toml_file_close. Files are at most TOML_FILE_MAX_BYTES. */
#ifndef KVICK_CMD_TOML_FILE_H
#define KVICK_CMD_TOML_FILE_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

#define TOML_FILE_MAX_BYTES ((size_t)1 << 20)

/* How a value was written. */
enum toml_file_form {
    TOML_FILE_TABLE,
    TOML_FILE_TEXT,
    TOML_FILE_WHOLE,
    TOML_FILE_REAL,
    TOML_FILE_FLAG,
    TOML_FILE_LIST, /* its values follow, is_listed */
    TOML_FILE_DATE,
};

struct toml_file_item {
    const char *table; /* "" at the top, else the name of [table] or [[table]] */
    size_t table_idx;  /* among the [[table]] of that name */
    const char *key;   /* "": the table itself begins */
    const char *text;  /* the value; of numbers in decimal, of flags "true" or "false"; "" of tables and lists */
    enum toml_file_form form;
    bool is_listed; /* a value of the list before it */
    int line;
};

struct toml_file {
    struct toml_file_item *items; /* [n_items] in the file's order */
    size_t n_items;
    void *bridge; /* owns the texts */
};

/* Errors: STATUS_IO, STATUS_LIMIT (size), STATUS_FORMAT with "PATH:LINE: words" in note, STATUS_NOMEM; STATUS_INVALID
 * in a build without the bridge. */
WARN_UNUSED enum status toml_file_open(struct toml_file *file, const char *path, struct status_note *note);
void toml_file_close(struct toml_file *file);

/* "a whole number", "a list", ...: for messages. */
const char *toml_file_form_name(enum toml_file_form form);

#endif
