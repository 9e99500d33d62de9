/* keys_file: keys and what each may do, from a TOML file of [[key]] tables.
 *
 * Fields: name and sha256 (of the key's text in hex, one or a list); class, weight, max-context, max-output,
 * tokens-per-minute, prefill-ms-per-minute, salt-scope, admin. docs/OPERATIONS.md says what they mean.
 * Thread: main. */
#ifndef KVICK_CMD_KEYS_FILE_H
#define KVICK_CMD_KEYS_FILE_H

#include "api/api_key.h"

struct keys_file {
    struct api_key *keys; /* [n_keys] of names and digests that all differ; mem */
    int n_keys;           /* at least 1 */
};

/* Errors: as toml_file_open; STATUS_INVALID with "PATH:LINE: field: reason". On an error there is nothing to close. */
WARN_UNUSED enum status keys_file_open(struct keys_file *file, const char *path, struct status_note *note);
void keys_file_close(struct keys_file *file);

/* A name of 1 to 63 letters, digits and "._-". */
bool keys_file_is_name(const char *name);

#endif
