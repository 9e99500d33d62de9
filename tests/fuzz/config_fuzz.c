/* Any bytes as a configuration and as a file of keys: what is accepted is within bounds, what is not is told with its
 * place. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/mem.h"
#include "cmd/config_file.h"
#include "cmd/keys_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

/* A file of these bytes without a disk. */
static bool write_file(char *path, size_t max_path, const uint8_t *data, size_t n_bytes) {
    static int fd = -1;
    if (fd < 0) fd = memfd_create("config", MFD_CLOEXEC);
    snprintf(path, max_path, "/proc/self/fd/%d", fd);
    return fd >= 0 && ftruncate(fd, 0) == 0 && pwrite(fd, data, n_bytes, 0) == (ssize_t)n_bytes;
}

static void read_config(const char *path) {
    struct options options;
    struct status_note note = {0};
    struct toml_file file;
    const char *words[1];
    int n_words;
    REQUIRE(options_parse(&options, FOR_SERVE, 0, NULL, words, &n_words, &note) == STATUS_OK);
    enum status status = config_file_read(&file, path, &options, FOR_SERVE, &note);
    REQUIRE(status == STATUS_OK || strncmp(note.text, path, strlen(path)) == 0);
    REQUIRE(options.api_key.n_items <= OPTIONS_MAX_LIST && options.port >= 0);
    if (!status) {
        char *text = NULL;
        size_t n_text = 0;
        FILE *out = open_memstream(&text, &n_text);
        REQUIRE(out);
        options_print(out, &options, FOR_SERVE);
        fclose(out);
        free(text);
    }
    toml_file_close(&file);
}

static void read_keys(const char *path) {
    struct keys_file file;
    struct status_note note = {0};
    if (keys_file_open(&file, path, &note)) {
        REQUIRE(strncmp(note.text, path, strlen(path)) == 0);
        return;
    }
    REQUIRE(file.n_keys >= 1);
    for (int i = 0; i < file.n_keys; i++) {
        const struct api_key *key = &file.keys[i];
        REQUIRE(keys_file_is_name(key->terms.name));
        REQUIRE(key->n_digests >= 1 && key->n_digests <= API_KEY_MAX_DIGESTS);
        REQUIRE(key->terms.weight >= 0 && key->terms.max_context >= 0 && key->terms.max_output >= 0);
        REQUIRE(key->tokens_per_minute >= 0 && key->prefill_ms_per_minute >= 0);
    }
    keys_file_close(&file);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes) {
    char path[64];
    if (!write_file(path, sizeof path, data, n_bytes)) return 0;
    read_config(path);
    read_keys(path);
    REQUIRE(mem_n_live() == 0);
    return 0;
}
