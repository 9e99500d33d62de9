#include "planner/cost_file.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cache_dir.h"
#include "base/str.h"

#define FIRST_LINE "kvick-cost 2\n"
#define SUFFIX ".cost"
#define MAX_BYTES 8192

static void digest_text(const char *bytes, size_t n_bytes, char out[HASH_SHA256_HEX_BYTES]) {
    uint8_t digest[HASH_SHA256_BYTES];
    hash_sha256(bytes, n_bytes, NULL, 0, digest);
    hash_sha256_hex(digest, out);
}

static void file_path(const struct cost_model *model, const char *dir, char out[CACHE_DIR_MAX_BYTES]) {
    char name[HASH_SHA256_HEX_BYTES];
    digest_text(model->key, strlen(model->key), name);
    snprintf(out, CACHE_DIR_MAX_BYTES, "%s/%.32s" SUFFIX, dir, name);
}

/* ---- reading ---- */

/* Reads a number and moves *at behind it. */
static bool read_real(const char **at, double *out) {
    int n = 0;
    if (sscanf(*at, "%la%n", out, &n) != 1) return false;
    *at += n;
    return *out >= 0 && *out < 1e18;
}

static bool read_count(const char **at, int *out) {
    int n = 0;
    if (sscanf(*at, "%d%n", out, &n) != 1) return false;
    *at += n;
    return *out >= 0;
}

static bool skip(const char **at, const char *text) {
    size_t n = strlen(text);
    if (strncmp(*at, text, n) != 0) return false;
    *at += n;
    return true;
}

/* text: terminated, its checksum is right. */
static bool parse(const struct cost_model *model, const char *text, struct step_cost *out, int *out_disturbed) {
    struct step_cost cost = {0};
    int rows[STEP_COST_MAX_POINTS], n = 0;
    double rows_ns[STEP_COST_MAX_POINTS];
    bool is_good = skip(&text, FIRST_LINE) && skip(&text, "key ") && skip(&text, model->key) &&
                   skip(&text, "\ndisturbed") && read_count(&text, out_disturbed) && skip(&text, "\nwindow") &&
                   read_real(&text, &cost.window_share) && read_count(&text, &cost.window_tokens) &&
                   skip(&text, "\nkeys") && read_real(&text, &cost.prefill_key_ns) &&
                   read_real(&text, &cost.decode_key_ns) && skip(&text, "\nrows") &&
                   read_real(&text, &cost.decode_row_ns) && read_real(&text, &cost.logit_row_ns) &&
                   skip(&text, "\ntable") && read_count(&text, &n) && n <= STEP_COST_MAX_POINTS;
    for (int i = 0; i < n && is_good; i++)
        is_good = skip(&text, "\n") && read_count(&text, &rows[i]) && read_real(&text, &rows_ns[i]);
    if (!is_good || !skip(&text, "\n") || *text || step_cost_init(out, n, rows, rows_ns, NULL)) return false;
    out->window_share = cost.window_share;
    out->window_tokens = cost.window_tokens;
    out->prefill_key_ns = cost.prefill_key_ns;
    out->decode_key_ns = cost.decode_key_ns;
    out->decode_row_ns = cost.decode_row_ns;
    out->logit_row_ns = cost.logit_row_ns;
    return true;
}

bool cost_file_load(struct cost_model *model, const char *dir) {
    char path[CACHE_DIR_MAX_BYTES], text[MAX_BYTES + 1], sum[HASH_SHA256_HEX_BYTES];
    struct step_cost cost;
    file_path(model, dir, path);
    FILE *file = fopen(path, "re");
    if (!file) return false;
    size_t n = fread(text, 1, MAX_BYTES, file);
    fclose(file);
    text[n] = 0;
    /* The last line is the digest of what is before it. */
    if (n < HASH_SHA256_HEX_BYTES || text[n - 1] != '\n') return false;
    digest_text(text, n - HASH_SHA256_HEX_BYTES, sum);
    if (strncmp(text + n - HASH_SHA256_HEX_BYTES, sum, HASH_SHA256_HEX_BYTES - 1) != 0) return false;
    text[n - HASH_SHA256_HEX_BYTES] = 0;
    int is_disturbed = 0;
    if (!parse(model, text, &cost, &is_disturbed)) return false;
    model->base = cost;
    model->source = COST_MODEL_READ;
    model->is_disturbed = is_disturbed != 0;
    return true;
}

/* ---- writing ---- */

static enum status print(const struct cost_model *model, struct str *out) {
    const struct step_cost *base = &model->base;
    char sum[HASH_SHA256_HEX_BYTES];
    enum status status = str_append_fmt(
        out, FIRST_LINE "key %s\ndisturbed %d\nwindow %a %d\nkeys %a %a\nrows %a %a\ntable %d\n", model->key,
        (int)model->is_disturbed, base->window_share, base->window_tokens, base->prefill_key_ns, base->decode_key_ns,
        base->decode_row_ns, base->logit_row_ns, base->n_points);
    for (int i = 0; i < base->n_points && !status; i++)
        status = str_append_fmt(out, "%d %a\n", base->rows[i], base->rows_ns[i]);
    if (status) return status;
    digest_text(out->ptr, out->n_bytes, sum);
    return str_append_fmt(out, "%s\n", sum);
}

static bool is_cost_file(const char *name) {
    size_t n = strlen(name), n_suffix = strlen(SUFFIX);
    return n > n_suffix && strcmp(name + n - n_suffix, SUFFIX) == 0;
}

/* Removes the oldest file while there are too many. */
static void prune(const char *dir) {
    for (int n_files = COST_FILE_MAX_FILES + 1; n_files > COST_FILE_MAX_FILES;) {
        char path[CACHE_DIR_MAX_BYTES + 256], oldest[sizeof path] = "";
        struct timespec oldest_time = {0};
        struct dirent *entry;
        struct stat st;
        DIR *folder = opendir(dir);
        n_files = 0;
        while (folder && (entry = readdir(folder))) {
            snprintf(path, sizeof path, "%s/%s", dir, entry->d_name);
            if (!is_cost_file(entry->d_name) || stat(path, &st) != 0) continue;
            bool is_older = st.st_mtim.tv_sec < oldest_time.tv_sec ||
                            (st.st_mtim.tv_sec == oldest_time.tv_sec && st.st_mtim.tv_nsec < oldest_time.tv_nsec);
            if (n_files++ == 0 || is_older) {
                memcpy(oldest, path, sizeof path);
                oldest_time = st.st_mtim;
            }
        }
        if (folder) closedir(folder);
        if (n_files > COST_FILE_MAX_FILES && unlink(oldest) != 0) return;
    }
}

static bool write_file(const char *path, const struct str *text) {
    FILE *file = fopen(path, "we");
    if (!file) return false;
    bool is_written = fwrite(text->ptr, 1, text->n_bytes, file) == text->n_bytes;
    return fclose(file) == 0 && is_written;
}

enum status cost_file_save(const struct cost_model *model, const char *dir, struct status_note *note) {
    char path[CACHE_DIR_MAX_BYTES], fresh[CACHE_DIR_MAX_BYTES + 32];
    struct str text;
    file_path(model, dir, path);
    snprintf(fresh, sizeof fresh, "%s.%ld", path, (long)getpid());
    str_init(&text, MAX_BYTES);
    enum status status = print(model, &text);
    cache_dir_make(dir);
    if (!status && (!write_file(fresh, &text) || rename(fresh, path) != 0)) {
        status = status_fail(note, STATUS_IO, "%s: %s", path, strerror(errno));
        unlink(fresh);
    }
    if (!status) prune(dir);
    str_deinit(&text);
    return status;
}
