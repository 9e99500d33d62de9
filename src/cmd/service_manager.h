/* service_manager: what a service manager as systemd is told, and the sockets that it hands over.
 *
 * Thread: main.   Source: sd_notify(3), sd_listen_fds(3): a datagram of NAME=VALUE lines to $NOTIFY_SOCKET, and file
 * descriptors from 3 on when $LISTEN_PID is this process. Written here because it is one sendto: the library for it
 * would be the only one that this process loads for others' sake. */
#ifndef KVICK_CMD_SERVICE_MANAGER_H
#define KVICK_CMD_SERVICE_MANAGER_H

#include "base/status.h"

#define SERVICE_MANAGER_MAX_SOCKETS 8

struct service_manager_socket {
    int fd;
    char name[64]; /* FileDescriptorName= of the socket unit */
};

/* READY=1, RELOADING=1, STOPPING=1 with a line that says more. Nothing where nobody listens. */
void service_manager_ready(const char *words);
void service_manager_reloading(void);
void service_manager_stopping(void);

/* Sockets handed over, which are this process's from then on; *out_n is 0 if there are none.
 * Errors: STATUS_INVALID when the variables make no sense, STATUS_LIMIT above SERVICE_MANAGER_MAX_SOCKETS. */
WARN_UNUSED enum status service_manager_take(struct service_manager_socket out[SERVICE_MANAGER_MAX_SOCKETS], int *out_n,
                                             struct status_note *note);

#endif
