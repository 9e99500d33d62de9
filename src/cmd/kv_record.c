#include "cmd/kv_record.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "cmd/kv_type.h"
#include "weights/gguf_digest.h"

static void hex_of(const struct gguf *gguf, char out[HASH_SHA256_HEX_BYTES]) {
    uint8_t digest[HASH_SHA256_BYTES];
    gguf_digest(gguf, digest);
    hash_sha256_hex(digest, out);
}

/* The record's folder is made where is_made says so. */
static bool path_of(const char hex[HASH_SHA256_HEX_BYTES], enum dtype dtype, bool is_made,
                    char out[CACHE_DIR_MAX_BYTES]) {
    char folder[CACHE_DIR_MAX_BYTES];
    if (!cache_dir_find("eval", folder)) return false;
    if (is_made) cache_dir_make(folder);
    return snprintf(out, CACHE_DIR_MAX_BYTES, "%s/%.32s-%s.json", folder, hex, kv_type_name(dtype)) <
           CACHE_DIR_MAX_BYTES;
}

enum kv_record_state kv_record_find(const struct gguf *gguf, enum dtype dtype) {
    char hex[HASH_SHA256_HEX_BYTES], path[CACHE_DIR_MAX_BYTES];
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
                           char out_path[CACHE_DIR_MAX_BYTES], struct status_note *note) {
    char hex[HASH_SHA256_HEX_BYTES], fresh[CACHE_DIR_MAX_BYTES + 32];
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
