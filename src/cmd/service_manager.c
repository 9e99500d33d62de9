#include "cmd/service_manager.h"

#include <fcntl.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/str.h"

#define FIRST_FD 3

/* ---- notices ---- */

static void notify(const char *state) {
    const char *path = getenv("NOTIFY_SOCKET");
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (!path || (path[0] != '/' && path[0] != '@')) return;
    size_t n = strlen(path);
    int fd = n < sizeof address.sun_path ? socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0) : -1;
    if (fd >= 0) {
        memcpy(address.sun_path, path, n);
        if (path[0] == '@') address.sun_path[0] = 0; /* no file: the abstract name space */
        socklen_t n_address = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n);
        ssize_t n_sent = sendto(fd, state, strlen(state), MSG_NOSIGNAL, (struct sockaddr *)&address, n_address);
        close(fd);
        if (n_sent == (ssize_t)strlen(state)) return;
    }
    log_line(LOG_WARN, "the service manager at %s cannot be told '%.20s...'", path, state);
}

void service_manager_ready(const char *words) {
    char state[512];
    snprintf(state, sizeof state, "READY=1\nMAINPID=%ld\nSTATUS=%s", (long)getpid(), words);
    notify(state);
}

void service_manager_reloading(void) {
    char state[128];
    snprintf(state, sizeof state, "RELOADING=1\nMONOTONIC_USEC=%lld", (long long)(clock_now_ns() / 1000));
    notify(state);
}

void service_manager_stopping(void) {
    notify("STOPPING=1\nSTATUS=draining");
}

/* ---- sockets ---- */

/* The number in a variable; -1: there is none, or it is none. */
static int64_t number_of(const char *name) {
    const char *text = getenv(name);
    int64_t value;
    return text && str_read_count(text, INT32_MAX, &value) ? value : -1;
}

enum status service_manager_take(struct service_manager_socket out[SERVICE_MANAGER_MAX_SOCKETS], int *out_n,
                                 struct status_note *note) {
    const char *names = getenv("LISTEN_FDNAMES");
    int64_t n = number_of("LISTEN_FDS");
    *out_n = 0;
    if (!getenv("LISTEN_FDS") || number_of("LISTEN_PID") != getpid()) return STATUS_OK;
    if (n < 0) return status_fail(note, STATUS_INVALID, "LISTEN_FDS: '%s' is not a number", getenv("LISTEN_FDS"));
    if (n > SERVICE_MANAGER_MAX_SOCKETS)
        return status_fail(note, STATUS_LIMIT, "LISTEN_FDS: %d sockets, at most %d are taken", (int)n,
                           SERVICE_MANAGER_MAX_SOCKETS);
    for (int i = 0; i < (int)n; i++) {
        int is_listening = 0, fd = FIRST_FD + i;
        socklen_t n_bytes = sizeof is_listening;
        out[i] = (struct service_manager_socket){.fd = fd};
        if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &is_listening, &n_bytes) != 0 || !is_listening)
            return status_fail(note, STATUS_INVALID, "LISTEN_FDS: descriptor %d is no socket that listens", fd);
        if (fcntl(fd, F_SETFD, FD_CLOEXEC) != 0) return status_fail(note, STATUS_IO, "descriptor %d", fd);
        size_t n_name = names ? strcspn(names, ":") : 0;
        snprintf(out[i].name, sizeof out[i].name, "%.*s", (int)n_name, names ? names : "");
        names = names && names[n_name] ? names + n_name + 1 : NULL;
    }
    *out_n = (int)n;
    return STATUS_OK;
}
