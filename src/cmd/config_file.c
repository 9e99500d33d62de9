#include "cmd/config_file.h"

static enum option_form form_of(enum toml_file_form form) {
    switch (form) {
    case TOML_FILE_TEXT: return OPTION_FORM_TEXT;
    case TOML_FILE_WHOLE: return OPTION_FORM_WHOLE;
    case TOML_FILE_REAL: return OPTION_FORM_REAL;
    case TOML_FILE_FLAG: return OPTION_FORM_FLAG;
    default: return OPTION_FORM_ANY; /* refused before */
    }
}

static enum status refuse(const char *path, const struct toml_file_item *item, const char *why,
                          struct status_note *note) {
    return status_fail(note, STATUS_INVALID, "%s:%d: %s: %s", path, item->line, item->key[0] ? item->key : item->table,
                       why);
}

/* The value at *i, or the list that begins there; moves *i to its last item. */
static enum status offer_one(const struct toml_file *file, size_t *i, const char *path, struct options *options,
                             unsigned command, struct status_note *note) {
    const struct toml_file_item *item = &file->items[*i];
    const char *texts[OPTIONS_MAX_LIST + 1];
    struct option_offer offer = {.name = item->key,
                                 .texts = texts,
                                 .is_list = item->form == TOML_FILE_LIST,
                                 .source = {OPTION_FILE, path, item->line}};
    if (item->table[0]) return refuse(path, item, "there are no tables in a configuration", note);
    const struct toml_file_item *value = offer.is_list ? item + 1 : item, *end = file->items + file->n_items;
    for (; value < end && (value == item || value->is_listed); value++) {
        if (value->form == TOML_FILE_TABLE || value->form == TOML_FILE_LIST || value->form == TOML_FILE_DATE ||
            (offer.n_texts > 0 && form_of(value->form) != offer.form))
            return refuse(path, value, "a text, a number, true or false, or a list of texts is expected", note);
        if (offer.n_texts > OPTIONS_MAX_LIST) return refuse(path, value, "too many items", note);
        offer.form = form_of(value->form);
        texts[offer.n_texts++] = value->text;
    }
    *i = (size_t)(value - file->items) - 1;
    return options_offer(options, command, &offer, note);
}

enum status config_file_read(struct toml_file *file, const char *path, struct options *options, unsigned command,
                             struct status_note *note) {
    enum status status = toml_file_open(file, path, note);
    for (size_t i = 0; !status && i < file->n_items; i++) status = offer_one(file, &i, path, options, command, note);
    return status;
}
