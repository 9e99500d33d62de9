#include "support/run_kvick.h"

#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "support/test.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define HAS_SANITIZER 1
#else
#define HAS_SANITIZER 0
#endif

#define MAX_ARGS 16

static size_t max_address_bytes = (size_t)1 << 30;

void run_kvick_allow_bytes(size_t n_bytes) {
    max_address_bytes = n_bytes;
}

/* build/<flavour>/tests/<this> -> build/<flavour>/kvick */
static void binary_path(char *out, size_t max_bytes) {
    ssize_t n = readlink("/proc/self/exe", out, max_bytes - 16);
    assert_true(n > 0);
    out[n] = 0;
    for (int i = 0; i < 2; i++) {
        char *slash = strrchr(out, '/');
        assert_non_null(slash);
        *slash = 0;
    }
    strcat(out, "/kvick");
    if (access(out, X_OK) != 0) fail_msg("%s is not built", out);
}

static void be_child(const char *binary, char **argv, int out_fd, int err_fd) {
    int null_fd = open("/dev/null", O_RDONLY);
    dup2(null_fd, 0);
    dup2(out_fd, 1);
    dup2(err_fd, 2);
    if (!HAS_SANITIZER) {
        struct rlimit limit = {max_address_bytes, max_address_bytes};
        setrlimit(RLIMIT_AS, &limit);
    }
    execv(binary, argv);
    _exit(127);
}

static void keep(char *to, size_t *n_kept, size_t max_bytes, const char *from, size_t n_bytes) {
    if (n_bytes > max_bytes - 1 - *n_kept) n_bytes = max_bytes - 1 - *n_kept;
    memcpy(to + *n_kept, from, n_bytes);
    *n_kept += n_bytes;
    to[*n_kept] = 0;
}

static void read_both(struct run_kvick *run, int out_fd, int err_fd) {
    struct pollfd fds[2] = {{.fd = out_fd, .events = POLLIN}, {.fd = err_fd, .events = POLLIN}};
    size_t err_bytes = 0;
    while (fds[0].fd >= 0 || fds[1].fd >= 0) {
        char piece[4096];
        assert_true(poll(fds, 2, -1) >= 0);
        for (int i = 0; i < 2; i++) {
            if (fds[i].fd < 0 || !fds[i].revents) continue;
            ssize_t n = read(fds[i].fd, piece, sizeof piece);
            if (n <= 0)
                fds[i].fd = -1;
            else if (i == 0)
                keep(run->out, &run->out_bytes, RUN_KVICK_MAX_BYTES, piece, (size_t)n);
            else
                keep(run->err, &err_bytes, sizeof run->err, piece, (size_t)n);
        }
    }
}

void run_kvick(struct run_kvick *run, const char *const *args) {
    char binary[4096];
    char *argv[MAX_ARGS + 2] = {binary};
    *run = (struct run_kvick){.exit_code = -1};
    binary_path(binary, sizeof binary);
    for (int i = 0; args[i]; i++) {
        assert_true(i < MAX_ARGS);
        argv[i + 1] = (char *)(uintptr_t)args[i];
    }
    run->out = mem_alloc(RUN_KVICK_MAX_BYTES);
    assert_non_null(run->out);
    int out[2], err[2];
    assert_int_equal(pipe2(out, O_CLOEXEC), 0);
    assert_int_equal(pipe2(err, O_CLOEXEC), 0);
    long long start_ns = clock_now_ns();
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) be_child(binary, argv, out[1], err[1]);
    close(out[1]);
    close(err[1]);
    read_both(run, out[0], err[0]);
    close(out[0]);
    close(err[0]);
    int ended;
    struct rusage usage;
    assert_int_equal(wait4(pid, &ended, 0, &usage), pid);
    run->wall_ns = clock_now_ns() - start_ns;
    run->max_rss_kib = usage.ru_maxrss;
    if (WIFEXITED(ended)) run->exit_code = WEXITSTATUS(ended);
    if (WIFSIGNALED(ended)) run->signal = WTERMSIG(ended);
}

void run_kvick_deinit(struct run_kvick *run) {
    mem_free(run->out);
    run->out = NULL;
}

void run_kvick_expect_refusal(const struct run_kvick *run, const char *path, const char *word) {
    const char *slash = strrchr(path, '/'), *newline = strchr(run->err, '\n');
    if (run->signal) fail_msg("%s: signal %d: %s", path, run->signal, run->err);
    if (run->exit_code != 1) fail_msg("%s: exit %d, not 1: %s", path, run->exit_code, run->err);
    if (run->out_bytes) fail_msg("%s: something on stdout: %s", path, run->out);
    if (!newline || newline[1]) fail_msg("%s: not one line on stderr: '%s'", path, run->err);
    if (!strstr(run->err, slash ? slash + 1 : path)) fail_msg("%s: the file is not named: %s", path, run->err);
    if (!strstr(run->err, word)) fail_msg("%s: no '%s' in: %s", path, word, run->err);
    if (HAS_SANITIZER) return;
    if (run->wall_ns > 1000000000) fail_msg("%s: took %lld ms", path, run->wall_ns / 1000000);
    if (run->max_rss_kib > 100 * 1024) fail_msg("%s: %ld KiB of memory", path, run->max_rss_kib);
}
