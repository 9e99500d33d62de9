#include "cmd/keys_file.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "api/api_auth.h"
#include "base/mem.h"
#include "base/str.h"
#include "cmd/toml_file.h"

#define MAX_PER_MINUTE 1e12
#define GROUP "group:"

bool keys_file_is_name(const char *name) {
    size_t n = strlen(name);
    for (size_t i = 0; i < n; i++)
        if (!isalnum((unsigned char)name[i]) && !strchr("._-", name[i])) return false;
    return n >= 1 && n < API_KEY_MAX_NAME_BYTES;
}

/* ---- one value ---- */

struct reader {
    const char *path;
    const struct toml_file_item *item, *begin; /* the value read, and where its table begins */
    struct api_key *key;
    bool has_salt_scope;
    struct status_note *note;
};

static enum status refuse(const struct reader *reader, const char *why) {
    return status_fail(reader->note, STATUS_INVALID, "%s:%d: %s: %s", reader->path, reader->item->line,
                       reader->item->key[0] ? reader->item->key : reader->item->table, why);
}

static enum status refuse_form(const struct reader *reader, const char *wanted) {
    return status_fail(reader->note, STATUS_INVALID, "%s:%d: %s must be %s, not %s", reader->path, reader->item->line,
                       reader->item->key, wanted, toml_file_form_name(reader->item->form));
}

static enum status read_name(struct reader *reader) {
    struct api_key_terms *terms = &reader->key->terms;
    if (reader->item->form != TOML_FILE_TEXT) return refuse_form(reader, "a text");
    if (!keys_file_is_name(reader->item->text)) return refuse(reader, "1 to 63 letters, digits, '.', '_' and '-' only");
    memcpy(terms->name, reader->item->text, strlen(reader->item->text) + 1);
    return STATUS_OK;
}

static int digit_of(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static bool read_hex(const char *text, uint8_t out[HASH_SHA256_BYTES]) {
    if (strlen(text) != 2 * HASH_SHA256_BYTES) return false;
    for (int i = 0; i < HASH_SHA256_BYTES; i++) {
        int high = digit_of(text[2 * i]), low = digit_of(text[2 * i + 1]);
        if (high < 0 || low < 0) return false;
        out[i] = (uint8_t)(16 * high + low);
    }
    return true;
}

static enum status read_digest(struct reader *reader) {
    struct api_key *key = reader->key;
    if (reader->item->form == TOML_FILE_LIST && !reader->item->is_listed) return STATUS_OK; /* its items follow */
    if (reader->item->form != TOML_FILE_TEXT) return refuse_form(reader, "a text or a list of texts");
    if (key->n_digests == API_KEY_MAX_DIGESTS) return refuse(reader, "more than 4 digests");
    if (!read_hex(reader->item->text, key->digests[key->n_digests]))
        return refuse(reader, "not the 64 hexadecimal digits of a SHA-256 (kvick key makes one)");
    key->n_digests++;
    return STATUS_OK;
}

static enum status read_class(struct reader *reader) {
    if (reader->item->form != TOML_FILE_TEXT) return refuse_form(reader, "a text");
    bool is_batch = strcmp(reader->item->text, "batch") == 0;
    if (!is_batch && strcmp(reader->item->text, "interactive") != 0) return refuse(reader, "interactive or batch");
    reader->key->terms.class_ = is_batch ? REQUEST_BATCH : REQUEST_INTERACTIVE;
    return STATUS_OK;
}

/* Equal scopes meet in the prefix cache, and nobody else's does. */
static enum status read_salt_scope(struct reader *reader) {
    const char *text = reader->item->text;
    struct api_key_terms *terms = &reader->key->terms;
    if (reader->item->form != TOML_FILE_TEXT) return refuse_form(reader, "a text");
    reader->has_salt_scope = strcmp(text, "key") != 0;
    if (strcmp(text, "key") == 0 || strcmp(text, "shared") == 0) return STATUS_OK;
    if (strncmp(text, GROUP, strlen(GROUP)) != 0 || !keys_file_is_name(text + strlen(GROUP)))
        return refuse(reader, "key, shared or group:NAME");
    terms->has_salt = true;
    hash_sha256("kvick salt", sizeof "kvick salt", text, strlen(text), terms->salt);
    return STATUS_OK;
}

static enum status read_admin(struct reader *reader) {
    if (reader->item->form != TOML_FILE_FLAG) return refuse_form(reader, "true or false");
    reader->key->is_admin = strcmp(reader->item->text, "true") == 0;
    return STATUS_OK;
}

static enum status read_count(const struct reader *reader, int max, int *out) {
    if (reader->item->form != TOML_FILE_WHOLE) return refuse_form(reader, "a whole number");
    int64_t value;
    if (!str_read_count(reader->item->text, max, &value) || value < 1)
        return status_fail(reader->note, STATUS_INVALID, "%s:%d: %s: %s is not within 1..%d", reader->path,
                           reader->item->line, reader->item->key, reader->item->text, max);
    *out = (int)value;
    return STATUS_OK;
}

static enum status read_weight(struct reader *reader) {
    return read_count(reader, 1000, &reader->key->terms.weight);
}

static enum status read_max_context(struct reader *reader) {
    return read_count(reader, INT32_MAX, &reader->key->terms.max_context);
}

static enum status read_max_output(struct reader *reader) {
    return read_count(reader, INT32_MAX, &reader->key->terms.max_output);
}

static enum status read_rate(const struct reader *reader, double *out) {
    if (reader->item->form != TOML_FILE_WHOLE && reader->item->form != TOML_FILE_REAL)
        return refuse_form(reader, "a number");
    *out = strtod(reader->item->text, NULL);
    if (!(*out > 0) || *out > MAX_PER_MINUTE) return refuse(reader, "must be above 0 and at most 1e12");
    return STATUS_OK;
}

static enum status read_tokens(struct reader *reader) {
    return read_rate(reader, &reader->key->tokens_per_minute);
}

static enum status read_prefill(struct reader *reader) {
    return read_rate(reader, &reader->key->prefill_ms_per_minute);
}

static const struct field {
    const char *name;
    enum status (*read)(struct reader *reader);
} fields[] = {{"name", read_name},
              {"sha256", read_digest},
              {"class", read_class},
              {"weight", read_weight},
              {"max-context", read_max_context},
              {"max-output", read_max_output},
              {"tokens-per-minute", read_tokens},
              {"prefill-ms-per-minute", read_prefill},
              {"salt-scope", read_salt_scope},
              {"admin", read_admin}};

static enum status read_field(struct reader *reader) {
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++) {
        if (strcmp(fields[i].name, reader->item->key) != 0) continue;
        if (reader->item->is_listed && fields[i].read != read_digest) return refuse(reader, "a list is not expected");
        return fields[i].read(reader);
    }
    return refuse(reader, "there is no such field");
}

/* ---- all of them ---- */

/* What a key has when its table is over. */
static enum status finish_key(struct reader *reader) {
    struct api_key_terms *terms = &reader->key->terms;
    if (!terms->name[0]) return refuse(reader, "there is no name in it");
    if (reader->key->n_digests == 0) return refuse(reader, "there is no sha256 in it");
    if (!reader->has_salt_scope) {
        terms->has_salt = true;
        hash_sha256("kvick key", sizeof "kvick key", terms->name, strlen(terms->name), terms->salt);
    }
    uint8_t digest[HASH_SHA256_BYTES];
    hash_sha256("kvick tenant", sizeof "kvick tenant", terms->name, strlen(terms->name), digest);
    memcpy(&terms->tenant_id, digest, sizeof terms->tenant_id);
    return STATUS_OK;
}

static enum status check_differs(const struct reader *reader, const struct api_key *keys, int n_keys) {
    const struct api_key *key = &keys[n_keys - 1];
    for (const struct api_key *other = keys; other < key; other++) {
        if (strcmp(other->terms.name, key->terms.name) == 0) return refuse(reader, "its name is another's too");
        for (int d = 0; d < key->n_digests; d++)
            for (int i = 0; i < other->n_digests; i++)
                if (memcmp(key->digests[d], other->digests[i], HASH_SHA256_BYTES) == 0)
                    return refuse(reader, "its sha256 is another's too");
    }
    return STATUS_OK;
}

static enum status end_key(struct reader *reader, const struct keys_file *file) {
    if (file->n_keys == 0) return STATUS_OK;
    reader->item = reader->begin;
    enum status status = finish_key(reader);
    return status ? status : check_differs(reader, file->keys, file->n_keys);
}

static enum status read_item(struct reader *reader, struct keys_file *file) {
    const struct toml_file_item *item = reader->item;
    if (strcmp(item->table, "key") != 0)
        return refuse(reader, item->table[0] ? "there are no such tables, only [[key]]" : "belongs into a [[key]]");
    if (item->key[0]) return read_field(reader);
    enum status status = end_key(reader, file);
    if (status) return status;
    if (file->n_keys == API_AUTH_MAX_KEYS) return refuse(reader, "more than 1024 keys");
    reader->begin = item;
    reader->key = &file->keys[file->n_keys++];
    reader->has_salt_scope = false;
    return STATUS_OK;
}

static enum status read_items(struct keys_file *file, const char *path, const struct toml_file *toml,
                              struct status_note *note) {
    struct reader reader = {.path = path, .note = note};
    enum status status = STATUS_OK;
    for (size_t i = 0; !status && i < toml->n_items; i++) {
        reader.item = &toml->items[i];
        status = read_item(&reader, file);
    }
    if (!status && file->n_keys == 0) return status_fail(note, STATUS_INVALID, "%s: there is no [[key]] in it", path);
    return status ? status : end_key(&reader, file);
}

enum status keys_file_open(struct keys_file *file, const char *path, struct status_note *note) {
    struct toml_file toml;
    *file = (struct keys_file){0};
    enum status status = toml_file_open(&toml, path, note);
    if (status) return status;
    file->keys = mem_alloc_array(API_AUTH_MAX_KEYS, sizeof *file->keys);
    status = file->keys ? read_items(file, path, &toml, note)
                        : status_fail(note, STATUS_NOMEM, "%s: no memory for its keys", path);
    toml_file_close(&toml);
    if (status) keys_file_close(file);
    return status;
}

void keys_file_close(struct keys_file *file) {
    mem_free(file->keys);
    *file = (struct keys_file){0};
}
