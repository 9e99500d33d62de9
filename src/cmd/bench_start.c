#include "cmd/bench_start.h"

#include <errno.h>
#include <math.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <jansson.h>

#include "base/clock.h"
#include "base/mem.h"
#include "bench/quantile.h"
#include "cmd/cmd.h"
#include "cmd/cmd_model.h"
#include "weights/gguf.h"

#define MAX_ROUNDS 1000
#define MAX_ANSWER_BYTES 65536

extern char **environ;

/* The parts of a start, by the names of `kvick run --json`: milliseconds from the command's begin to the part's end. */
static const struct {
    const char *key, *what;
} parts[] = {{"file_ms", "model file read and checked"},
             {"tokenizer_ms", "tokenizer ready"},
             {"template_ms", "chat template ready"},
             {"prompt_ms", "prompt encoded"},
             {"model_ms", "weights packed"},
             {"first_token_ms", "first token computed"}};

#define N_PARTS ((int)(sizeof parts / sizeof parts[0]))

struct start {
    double total_ms;        /* from before the process exists to its first byte of output */
    double end_ms[N_PARTS]; /* from main; NAN: not in this kind of run */
};

/* ---- one run ---- */

static enum status read_answer(int fd, int64_t *out_first_ns, char *text, size_t *out_n_bytes) {
    size_t n_bytes = 0;
    for (;;) {
        ssize_t n = read(fd, text + n_bytes, MAX_ANSWER_BYTES - 1 - n_bytes);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return STATUS_IO;
        if (n == 0) break;
        if (n_bytes == 0) *out_first_ns = clock_now_ns();
        n_bytes += (size_t)n;
        if (n_bytes == MAX_ANSWER_BYTES - 1) return STATUS_LIMIT;
    }
    text[n_bytes] = 0;
    *out_n_bytes = n_bytes;
    return STATUS_OK;
}

static enum status parse_answer(const char *text, size_t n_bytes, struct start *out, struct status_note *note) {
    json_t *root = json_loadb(text, n_bytes, 0, NULL);
    const json_t *start = json_object_get(root, "start");
    for (int i = 0; i < N_PARTS; i++) {
        const json_t *end = json_object_get(start, parts[i].key);
        out->end_ms[i] = json_is_real(end) ? json_real_value(end) : NAN;
    }
    json_decref(root);
    if (isfinite(out->end_ms[N_PARTS - 1])) return STATUS_OK;
    return status_fail(note, STATUS_FORMAT, "the run says nothing about its start");
}

static enum status run_once(char *const *arguments, struct start *out, struct status_note *note) {
    static char text[MAX_ANSWER_BYTES];
    int ends[2], exit_status = 0;
    size_t n_bytes = 0;
    pid_t child;
    if (pipe(ends)) return status_fail(note, STATUS_IO, "cannot make a pipe: %s", strerror(errno));
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
    posix_spawn_file_actions_addclose(&actions, ends[0]);
    posix_spawn_file_actions_addclose(&actions, ends[1]);
    int64_t begun_ns = clock_now_ns(), first_ns = begun_ns;
    int failed = posix_spawn(&child, "/proc/self/exe", &actions, NULL, arguments, environ);
    posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
    enum status status = failed ? status_fail(note, STATUS_IO, "cannot start a run: %s", strerror(failed)) : STATUS_OK;
    if (!failed) {
        status = read_answer(ends[0], &first_ns, text, &n_bytes);
        if (status) status_fail(note, status, "cannot read the run's answer");
    }
    close(ends[0]);
    if (!failed)
        while (waitpid(child, &exit_status, 0) < 0 && errno == EINTR) continue;
    if (!status && exit_status) status = status_fail(note, STATUS_PEER, "the run failed (its own words are above)");
    out->total_ms = (double)(first_ns - begun_ns) / 1e6;
    return status ? status : parse_answer(text, n_bytes, out, note);
}

/* ---- all runs ---- */

/* Of one figure of every run; the figures lie sizeof(struct start) apart. */
static double median(const double *first, int n, double *scratch) {
    for (int i = 0; i < n; i++)
        memcpy(&scratch[i], (const char *)first + (size_t)i * sizeof(struct start), sizeof *scratch);
    return quantile_median(scratch, n);
}

static enum status measure(char *const *arguments, int n_rounds, struct start *out, struct status_note *note) {
    struct start *starts = mem_alloc_array((size_t)n_rounds, sizeof *starts);
    double *scratch = mem_alloc_array((size_t)n_rounds, sizeof *scratch);
    enum status status = starts && scratch ? STATUS_OK : status_fail(note, STATUS_NOMEM, "no memory for the rounds");
    for (int i = -1; i < n_rounds && !status; i++) /* -1: the file comes into the page cache */
        status = run_once(arguments, &starts[i < 0 ? 0 : i], note);
    if (!status) {
        out->total_ms = median(&starts->total_ms, n_rounds, scratch);
        for (int p = 0; p < N_PARTS; p++) out->end_ms[p] = median(&starts->end_ms[p], n_rounds, scratch);
    }
    mem_free(starts);
    mem_free(scratch);
    return status;
}

static enum status can_chat(const char *path, bool *out_can_chat, struct status_note *note) {
    struct gguf *gguf;
    enum status status = gguf_open(&gguf, path, note);
    if (status) return status;
    *out_can_chat = gguf_has(gguf, "tokenizer.chat_template");
    gguf_close(&gguf);
    return STATUS_OK;
}

/* ---- result ---- */

static int print_json(const struct start *start, int n_rounds) {
    json_t *root = json_pack("{s:f, s:i}", "start_ms", start->total_ms, "rounds", n_rounds);
    if (!root) return cmd_fail(NULL, STATUS_NOMEM, NULL);
    for (int i = 0; i < N_PARTS; i++)
        if (isfinite(start->end_ms[i])) json_object_set_new(root, parts[i].key, json_real(start->end_ms[i]));
    json_dumpf(root, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(6));
    putchar('\n');
    json_decref(root);
    return 0;
}

static void print_table(const struct start *start, int n_rounds, double target_ms) {
    printf("ms from main, medians of %d runs; the weights are packed beside the rest\n", n_rounds);
    for (int i = 0; i < N_PARTS; i++)
        if (isfinite(start->end_ms[i])) printf("%-28s %8.1f\n", parts[i].what, start->end_ms[i]);
    printf("%-28s %8.1f   of which %.1f before main and for the output", "process start to first byte", start->total_ms,
           start->total_ms - start->end_ms[N_PARTS - 1]);
    if (target_ms > 0) printf("   target %.0f: %s", target_ms, start->total_ms <= target_ms ? "PASS" : "short");
    putchar('\n');
}

int bench_start(const struct options *options, const char *model) {
    char path[CMD_MODEL_MAX_PATH_BYTES], threads[24];
    struct status_note note = {0};
    struct start start;
    bool has_template = false;
    if (options->rounds < 1 || options->rounds > MAX_ROUNDS)
        return cmd_usage("bench", "--rounds: %ld is not within 1..%d", options->rounds, MAX_ROUNDS);
    if (!(options->target_ms >= 0)) return cmd_usage("bench", "--target-ms: %g is negative", options->target_ms);
    enum status status = cmd_model_path(model, path, &note);
    if (!status) status = can_chat(path, &has_template, &note);
    if (status) return cmd_fail(model, status, &note);
    snprintf(threads, sizeof threads, "%ld", options->threads);
    const char *arguments[] = {
        "kvick", "run", path, "--json", "-n", "1", "-p", "Hi", "-t", threads, has_template ? NULL : "--raw", NULL};
    status = measure((char *const *)(uintptr_t)arguments, (int)options->rounds, &start, &note);
    if (status) return cmd_fail(path, status, &note);
    if (options->json) return print_json(&start, (int)options->rounds);
    print_table(&start, (int)options->rounds, options->target_ms);
    return 0;
}
