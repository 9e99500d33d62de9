#include "cmd/bench_server.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/thread.h"

#define MAX_LINE_BYTES 1024
#define STOP_NS INT64_C(10000000000)

struct arguments {
    const char *words[BENCH_SERVER_MAX_ARGUMENTS];
    int n_words;
    char numbers[8][24];
    int n_numbers;
};

static void add(struct arguments *arguments, const char *name, const char *value) {
    REQUIRE(arguments->n_words + 3 <= BENCH_SERVER_MAX_ARGUMENTS);
    arguments->words[arguments->n_words++] = name;
    if (value) arguments->words[arguments->n_words++] = value;
}

static void add_number(struct arguments *arguments, const char *name, long value) {
    REQUIRE(arguments->n_numbers < (int)(sizeof arguments->numbers / sizeof arguments->numbers[0]));
    char *text = arguments->numbers[arguments->n_numbers++];
    snprintf(text, sizeof arguments->numbers[0], "%ld", value);
    add(arguments, name, text);
}

static void gather(struct arguments *arguments, const char *model, const struct options *options,
                   const struct bench_server_extra *extra) {
    add(arguments, "kvick", NULL);
    add(arguments, "serve", model);
    add(arguments, "--port", "0");
    add(arguments, "--no-access-log", NULL);
    add(arguments, "--log-level", "error"); /* that it is under load is known */
    add(arguments, "--kv-cache-dtype", options->kv_cache_dtype);
    add(arguments, "--activations", options->activations);
    if (options->isa) add(arguments, "--isa", options->isa);
    if (options->no_pin) add(arguments, "--no-pin", NULL);
    add_number(arguments, "--threads", options->threads);
    add_number(arguments, "--threads-decode", options->threads_decode);
    add_number(arguments, "--chunk", options->chunk);
    add_number(arguments, "--block-tokens", options->block_tokens);
    add_number(arguments, "--max-model-len", options->context);
    if (options->kv_cache_memory_bytes)
        add_number(arguments, "--kv-cache-memory-bytes", options->kv_cache_memory_bytes);
    for (int i = 0; extra && i < extra->n_words; i++) add(arguments, extra->words[i], NULL);
    arguments->words[arguments->n_words] = NULL;
}

/* In the child. Only calls that are safe between fork and exec. */
_Noreturn static void become(const struct arguments *arguments, int out, pid_t parent) {
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent || dup2(out, STDOUT_FILENO) < 0) _exit(1);
    close(out);
    execv("/proc/self/exe", (char *const *)(uintptr_t)arguments->words);
    _exit(127);
}

/* Reads its lines until it says where it listens. */
static enum status await_ready(struct bench_server *server, struct status_note *note) {
    char line[MAX_LINE_BYTES];
    size_t n = 0;
    for (char byte; read(server->fd, &byte, 1) == 1;) {
        if (byte != '\n') {
            if (n < sizeof line - 1) line[n++] = byte;
            continue;
        }
        line[n] = 0;
        n = 0;
        int n_url = 0;
        if (sscanf(line, "listening on http://127.0.0.1:%*d%n", &n_url) < 0 || n_url == 0) continue;
        snprintf(server->url, sizeof server->url, "%.*s", n_url - 13, line + 13);
        return STATUS_OK;
    }
    return status_fail(note, STATUS_PEER, "the server that was started has ended (its own words are above)");
}

enum status bench_server_start(struct bench_server *server, const char *model, const struct options *options,
                               const struct bench_server_extra *extra, struct status_note *note) {
    struct arguments arguments = {0};
    int ends[2];
    *server = (struct bench_server){.fd = -1};
    gather(&arguments, model, options, extra);
    if (pipe(ends)) return status_fail(note, STATUS_IO, "cannot make a pipe: %s", strerror(errno));
    pid_t parent = getpid(), child = fork();
    if (child == 0) {
        close(ends[0]);
        become(&arguments, ends[1], parent);
    }
    close(ends[1]);
    if (child < 0) {
        close(ends[0]);
        return status_fail(note, STATUS_IO, "cannot start a server: %s", strerror(errno));
    }
    server->pid = child;
    server->fd = ends[0];
    enum status status = await_ready(server, note);
    if (status) bench_server_stop(server);
    return status;
}

void bench_server_stop(struct bench_server *server) {
    if (server->pid <= 0) return;
    kill(server->pid, SIGTERM);
    for (int64_t until_ns = clock_now_ns() + STOP_NS; waitpid(server->pid, NULL, WNOHANG) == 0; thread_sleep_ms(5))
        if (clock_now_ns() > until_ns) {
            kill(server->pid, SIGKILL);
            until_ns = INT64_MAX;
        }
    close(server->fd);
    server->pid = 0;
}
