#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "base/str.h"
#include "cmd/cmd.h"
#include "cmd/cmd_model.h"
#include "tokenizer/tokenizer.h"
#include "weights/gguf.h"

#define MAX_TEXT_BYTES ((size_t)256 << 20)
#define MAX_LINE_BYTES ((size_t)64 << 20)

struct job {
    struct tokenizer *tokenizer;
    unsigned flags;
    struct id_list ids;
    struct status_note note;
};

static enum status open_tokenizer(struct job *job, const char *name_or_path) {
    char path[CMD_MODEL_MAX_PATH_BYTES];
    struct gguf *gguf;
    enum status status = cmd_model_path(name_or_path, path, &job->note);
    if (!status) status = gguf_open(&gguf, path, &job->note);
    if (status) return status;
    status = tokenizer_open(&job->tokenizer, gguf, &job->note);
    gguf_close(&gguf);
    return status;
}

static void print_ids(const struct id_list *ids, const char *separator) {
    for (size_t i = 0; i < ids->n_ids; i++) printf("%s%d", i ? separator : "", (int)ids->ids[i]);
}

static enum status encode(struct job *job, const char *text, size_t n_bytes) {
    id_list_clear(&job->ids);
    return tokenizer_encode(job->tokenizer, text, n_bytes, job->flags, &job->ids, &job->note);
}

/* Appends standard input to str up to the end, or to the first newline (which is dropped) if is_line; *out_is_end:
 * there was nothing left. */
static enum status read_input(struct str *str, int is_line, int *out_is_end, struct status_note *note) {
    *out_is_end = 1;
    char buffer[4096];
    for (;;) {
        size_t n = 0;
        int byte = 0;
        while (n < sizeof buffer && (byte = getc_unlocked(stdin)) != EOF && !(is_line && byte == '\n'))
            buffer[n++] = (char)byte;
        if (n || byte != EOF) *out_is_end = 0;
        enum status status = str_append(str, buffer, n);
        if (status == STATUS_LIMIT)
            return status_fail(note, status, "standard input: %s of more than %zu bytes", is_line ? "a line" : "a text",
                               str->max_bytes);
        if (status) return status_fail(note, status, "standard input: out of memory");
        if (ferror(stdin)) return status_fail(note, STATUS_IO, "standard input: %s", strerror(errno));
        if (byte == EOF || (is_line && byte == '\n')) return STATUS_OK;
    }
}

static enum status encode_plain(struct job *job, const char *text) {
    struct str input;
    int is_end;
    str_init(&input, MAX_TEXT_BYTES);
    enum status status = text ? STATUS_OK : read_input(&input, 0, &is_end, &job->note);
    if (!status) status = text ? encode(job, text, strlen(text)) : encode(job, input.ptr, input.n_bytes);
    if (!status) {
        print_ids(&job->ids, " ");
        putchar('\n');
    }
    str_deinit(&input);
    return status;
}

static enum status encode_line(struct job *job, const char *line, size_t n_bytes, long line_no) {
    json_error_t error;
    json_t *root = json_loadb(line, n_bytes, JSON_ALLOW_NUL | JSON_REJECT_DUPLICATES, &error);
    if (!root) return status_fail(&job->note, STATUS_FORMAT, "line %ld: %s", line_no, error.text);
    const json_t *text = json_object_get(root, "text");
    enum status status;
    if (!json_is_string(text))
        status = status_fail(&job->note, STATUS_FORMAT, "line %ld: no string under \"text\"", line_no);
    else
        status = encode(job, json_string_value(text), json_string_length(text));
    json_decref(root);
    if (status) return status;
    fputs("{\"ids\": [", stdout);
    print_ids(&job->ids, ", ");
    puts("]}");
    return ferror(stdout) ? status_fail(&job->note, STATUS_IO, "cannot write to standard output") : STATUS_OK;
}

static enum status encode_lines(struct job *job) {
    struct str line;
    enum status status;
    int is_end;
    str_init(&line, MAX_LINE_BYTES);
    for (long line_no = 1;; line_no++) {
        str_clear(&line);
        if ((status = read_input(&line, 1, &is_end, &job->note)) || is_end) break;
        if (line.n_bytes && (status = encode_line(job, line.ptr, line.n_bytes, line_no))) break;
    }
    str_deinit(&line);
    return status;
}

int cmd_tokenize(const struct options *options, int n_words, const char **words) {
    if (n_words < 1) return cmd_usage("tokenize", "no model given");
    if (n_words > 2) return cmd_usage("tokenize", "unexpected argument '%s' (quote the text)", words[2]);
    if (options->jsonl && n_words > 1) return cmd_usage("tokenize", "--jsonl reads standard input, not '%s'", words[1]);
    struct job job = {0};
    if (options->bos) job.flags |= TOKENIZER_ADD_BOS;
    if (options->parse_special) job.flags |= TOKENIZER_PARSE_SPECIAL;
    id_list_init(&job.ids, MAX_TEXT_BYTES);
    enum status status = open_tokenizer(&job, words[0]);
    if (status) return cmd_fail(words[0], status, &job.note);
    status = options->jsonl ? encode_lines(&job) : encode_plain(&job, n_words > 1 ? words[1] : NULL);
    id_list_deinit(&job.ids);
    tokenizer_close(&job.tokenizer);
    return status ? cmd_fail(NULL, status, &job.note) : 0;
}
