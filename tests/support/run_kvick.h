/* run_kvick: the built binary as a child, with what it said, how long it took and how much memory it had. */
#ifndef KVICK_TESTS_SUPPORT_RUN_KVICK_H
#define KVICK_TESTS_SUPPORT_RUN_KVICK_H

#include <stddef.h>

#define RUN_KVICK_MAX_BYTES (1 << 20) /* kept of stdout; the rest is read and dropped */

struct run_kvick {
    int exit_code; /* -1: it died of signal */
    int signal;
    long long wall_ns;
    long max_rss_kib;
    char *out; /* terminated */
    size_t out_bytes;
    char err[4096]; /* terminated, cut */
};

/* Address space of the children from now on; 1 GiB at first. */
void run_kvick_allow_bytes(size_t n_bytes);

/* Runs build/<flavour of this test>/kvick with args (NULL at the end), stdin empty, its address space bounded
 * unless sanitizers need more. Fails the running test if it cannot be started. Free with run_kvick_deinit. */
void run_kvick(struct run_kvick *run, const char *const *args);
void run_kvick_deinit(struct run_kvick *run);

/* Fails the running test unless the child said no on one line: exit 1, empty stdout, one line on stderr that holds word
 * and the last component of path, < 1 s, < 100 MB (time and memory not under sanitizers). */
void run_kvick_expect_refusal(const struct run_kvick *run, const char *path, const char *word);

#endif
