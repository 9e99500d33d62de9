#include "cmd/cmd_model.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A name is one path component of plain characters: it cannot point out of the cache. */
static int is_name(const char *text) {
    size_t n = strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-");
    return n > 0 && n <= 128 && text[n] == 0 && text[0] != '.' && !strstr(text, ".gguf") &&
           !strstr(text, ".safetensors");
}

static int cache_path(const char *name, char out[CMD_MODEL_MAX_PATH_BYTES]) {
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    int n;
    if (cache && cache[0] == '/') /* the XDG specification ignores relative paths */
        n = snprintf(out, CMD_MODEL_MAX_PATH_BYTES, "%s/kvick/models/%s.gguf", cache, name);
    else
        n = snprintf(out, CMD_MODEL_MAX_PATH_BYTES, "%s/.cache/kvick/models/%s.gguf", home ? home : "", name);
    return n > 0 && n < CMD_MODEL_MAX_PATH_BYTES;
}

enum status cmd_model_path(const char *name_or_path, char out_path[CMD_MODEL_MAX_PATH_BYTES],
                           struct status_note *note) {
    size_t n = strlen(name_or_path);
    out_path[0] = 0;
    if (n == 0) return status_fail(note, STATUS_INVALID, "the model's name is empty");
    if (n >= CMD_MODEL_MAX_PATH_BYTES) return status_fail(note, STATUS_INVALID, "the model's path is too long");
    if (access(name_or_path, F_OK) == 0) {
        memcpy(out_path, name_or_path, n + 1);
        return STATUS_OK;
    }
    const char *why = strerror(errno);
    if (!is_name(name_or_path)) return status_fail(note, STATUS_IO, "cannot open: %s", why);
    if (!cache_path(name_or_path, out_path)) return status_fail(note, STATUS_INVALID, "the model's path is too long");
    if (access(out_path, F_OK) == 0) return STATUS_OK;
    return status_fail(note, STATUS_IO,
                       "no such file, and no model of this name here (fetch it: scripts/fetch-model %s)", name_or_path);
}

void cmd_model_name(const char path[CMD_MODEL_MAX_PATH_BYTES], char out_name[CMD_MODEL_MAX_PATH_BYTES]) {
    const char *slash = strrchr(path, '/');
    snprintf(out_name, CMD_MODEL_MAX_PATH_BYTES, "%s", slash ? slash + 1 : path);
    size_t n = strlen(out_name);
    if (n > 5 && strcmp(out_name + n - 5, ".gguf") == 0) out_name[n - 5] = 0;
}
