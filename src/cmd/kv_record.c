#include "cmd/kv_record.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "cmd/kv_type.h"
#include "weights/gguf_digest.h"

#define HEX_BYTES (2 * HASH_SHA256_BYTES + 1)

/* Folders up to the record's are made where is_made says so. */
static bool folder_of(char out[KV_RECORD_MAX_PATH_BYTES], bool is_made) {
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    bool has_cache = cache && cache[0] == '/'; /* the XDG specification ignores relative paths */
    const char *parts[] = {has_cache ? "" : "/.cache", "/kvick", "/eval"};
    if (!has_cache && (!home || home[0] != '/')) return false;
    int n = snprintf(out, KV_RECORD_MAX_PATH_BYTES, "%s", has_cache ? cache : home);
    if (n >= KV_RECORD_MAX_PATH_BYTES - 256) return false; /* room for folders and a file's name */
    if (is_made) mkdir(out, 0777);                         /* what cannot be made shows when the file is opened */
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        n += snprintf(out + n, (size_t)(KV_RECORD_MAX_PATH_BYTES - n), "%s", parts[i]);
        if (is_made) mkdir(out, 0777);
    }
    return true;
}

static void hex_of(const struct gguf *gguf, char out[HEX_BYTES]) {
    uint8_t digest[HASH_SHA256_BYTES];
    gguf_digest(gguf, digest);
    for (int i = 0; i < HASH_SHA256_BYTES; i++) snprintf(out + 2 * i, 3, "%02x", digest[i]);
}

static bool path_of(const char hex[HEX_BYTES], enum dtype dtype, bool is_made, char out[KV_RECORD_MAX_PATH_BYTES]) {
    char folder[KV_RECORD_MAX_PATH_BYTES];
    if (!folder_of(folder, is_made)) return false;
    return snprintf(out, KV_RECORD_MAX_PATH_BYTES, "%s/%.32s-%s.json", folder, hex, kv_type_name(dtype)) <
           KV_RECORD_MAX_PATH_BYTES;
}

enum kv_record_state kv_record_find(const struct gguf *gguf, enum dtype dtype) {
    char hex[HEX_BYTES], path[KV_RECORD_MAX_PATH_BYTES];
    const char *weights = "", *kv = "";
    int version = 0, is_passed = 0;
    enum kv_record_state state = KV_RECORD_NONE;
    hex_of(gguf, hex);
    if (!path_of(hex, dtype, false, path)) return KV_RECORD_NONE;
    json_t *root = json_load_file(path, 0, NULL);
    if (root &&
        json_unpack(root, "{s:i, s:s, s:s, s:b}", "kv_eval_version", &version, "weights", &weights, "kv", &kv, "passed",
                    &is_passed) == 0 &&
        version == KV_EVAL_VERSION && strcmp(weights, hex) == 0 && strcmp(kv, kv_type_name(dtype)) == 0)
        state = is_passed ? KV_RECORD_PASSED : KV_RECORD_FAILED;
    json_decref(root);
    return state;
}

enum status kv_record_save(const struct gguf *gguf, enum dtype dtype, bool is_passed, json_t *details,
                           char out_path[KV_RECORD_MAX_PATH_BYTES], struct status_note *note) {
    char hex[HEX_BYTES], fresh[KV_RECORD_MAX_PATH_BYTES + 32];
    hex_of(gguf, hex);
    if (!path_of(hex, dtype, true, out_path))
        return status_fail(note, STATUS_INVALID, "no folder for a record: neither XDG_CACHE_HOME nor HOME is a path");
    snprintf(fresh, sizeof fresh, "%s.%ld", out_path, (long)getpid());
    json_t *root = json_pack("{s:i, s:s, s:s, s:b, s:O}", "kv_eval_version", KV_EVAL_VERSION, "weights", hex, "kv",
                             kv_type_name(dtype), "passed", (int)is_passed, "result", details);
    if (!root) return STATUS_NOMEM;
    bool is_written = json_dump_file(root, fresh, JSON_INDENT(2)) == 0 && rename(fresh, out_path) == 0;
    json_decref(root);
    if (is_written) return STATUS_OK;
    enum status status = status_fail(note, STATUS_IO, "%s: %s", out_path, strerror(errno));
    unlink(fresh);
    return status;
}

void kv_record_warn(const struct gguf *gguf, enum dtype dtype, const char *model) {
    if (dtype != DTYPE_Q8_0) return;
    enum kv_record_state state = kv_record_find(gguf, dtype);
    if (state == KV_RECORD_PASSED) return;
    log_line(LOG_WARN, "--kv-cache-dtype q8_0: %s; kvick eval kv %s --kv-cache-dtype q8_0 %s",
             state == KV_RECORD_FAILED ? "these weights failed their evaluation with it"
                                       : "nobody evaluated it on these weights",
             model, state == KV_RECORD_FAILED ? "says where" : "does");
}
