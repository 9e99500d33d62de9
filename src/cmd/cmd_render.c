#include <errno.h>
#include <stdio.h>
#include <string.h>

#include <jansson.h>

#include "base/file_map.h"
#include "base/mem.h"
#include "base/str.h"
#include "chat/chat_template.h"
#include "cmd/cmd.h"
#include "cmd/cmd_chat.h"
#include "cmd/cmd_model.h"
#include "weights/gguf.h"

#define MAX_REQUEST_BYTES ((size_t)64 << 20)

/* What the command holds while it works; the template's and the tokens' texts point into one of these. */
struct sources {
    struct gguf *gguf;
    struct file_map file;
    struct str request;
    json_t *root;
};

static void sources_close(struct sources *sources) {
    gguf_close(&sources->gguf);
    file_map_close(&sources->file);
    str_deinit(&sources->request);
    json_decref(sources->root);
}

static enum status read_request(struct str *request, const char *path, struct status_note *note) {
    FILE *file = strcmp(path, "-") == 0 ? stdin : fopen(path, "rb");
    if (!file) return status_fail(note, STATUS_IO, "%s", strerror(errno));
    enum status status = STATUS_OK;
    char bytes[65536];
    size_t n;
    while (!status && (n = fread(bytes, 1, sizeof bytes, file)) > 0) status = str_append(request, bytes, n);
    if (status)
        status_fail(note, status, "request longer than %zu bytes, or no memory for it", MAX_REQUEST_BYTES);
    else if (ferror(file))
        status = status_fail(note, STATUS_IO, "%s", strerror(errno));
    if (file != stdin) fclose(file);
    return status;
}

static struct chat_template_token request_token(const json_t *root, const char *key) {
    const json_t *text = json_object_get(root, key);
    return (struct chat_template_token){json_string_value(text), json_string_length(text)};
}

/* A bare template's tokens stand in the request. A request that is no JSON has none; rendering says so. */
static enum status bare_template(struct sources *sources, struct chat_template **out, struct status_note *note) {
    sources->root = json_loadb(sources->request.ptr, sources->request.n_bytes, JSON_ALLOW_NUL, NULL);
    struct chat_template_tokens tokens = {
        .bos = request_token(sources->root, "bos_token"),
        .eos = request_token(sources->root, "eos_token"),
        .unk = request_token(sources->root, "unk_token"),
        .pad = request_token(sources->root, "pad_token"),
    };
    return chat_template_create(out, (const char *)sources->file.bytes, sources->file.n_bytes, &tokens, note);
}

static bool is_gguf(const struct file_map *file) {
    return file->n_bytes >= 4 && memcmp(file->bytes, "GGUF", 4) == 0;
}

static int render(struct sources *sources, const char *name, const char *messages, int64_t now_s) {
    struct status_note note = {0};
    char path[CMD_MODEL_MAX_PATH_BYTES];
    if (cmd_model_path(name, path, &note)) return cmd_fail(name, STATUS_IO, &note);
    enum status status = read_request(&sources->request, messages, &note);
    if (status) return cmd_fail(messages, status, &note);
    status = file_map_open(&sources->file, path, &note);
    if (status) return cmd_fail(path, status, &note);
    struct chat_template *chat_template = NULL;
    if (!is_gguf(&sources->file))
        status = bare_template(sources, &chat_template, &note);
    else if (!(status = gguf_open(&sources->gguf, path, &note)))
        status = cmd_chat_template(sources->gguf, &chat_template, &note);
    if (status) return cmd_fail(path, status, &note);
    struct str text;
    str_init(&text, CHAT_TEMPLATE_MAX_OUT_BYTES);
    status =
        chat_template_render(chat_template, sources->request.ptr, sources->request.n_bytes, now_s, &text, NULL, &note);
    int exit_code = status ? cmd_fail(path, status, &note) : 0;
    if (!status) fwrite(text.ptr, 1, text.n_bytes, stdout);
    str_deinit(&text);
    chat_template_destroy(&chat_template);
    return exit_code;
}

int cmd_render(const struct options *options, int n_words, const char **words) {
    if (n_words != 1) return cmd_usage("render", "one MODEL or TEMPLATE is needed, %d given", n_words);
    if (!options->messages) return cmd_usage("render", "--messages FILE is missing");
    int64_t now_s;
    if (!cmd_chat_now(options->now, &now_s))
        return cmd_usage("render", "--now: '%s' is no date like 2026-11-29 or 2026-11-29T12:00:00", options->now);
    struct sources sources = {0};
    str_init(&sources.request, MAX_REQUEST_BYTES);
    int exit_code = render(&sources, words[0], options->messages, now_s);
    sources_close(&sources);
    return exit_code;
}
