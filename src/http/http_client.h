/* http_client: requests to other servers, many at a time, driven by the thread that asks. Knows no LLM.
 *
 * Bytes of a reply are handed on as they come. Redirects are not followed; loopback is reached without a proxy, other
 * hosts as the environment says (http_proxy and the like). Connections are kept and used again.
 * Thread: one owner.   Memory: max_transfers at most; what a request points to is borrowed until its end. */
#ifndef KVICK_HTTP_HTTP_CLIENT_H
#define KVICK_HTTP_HTTP_CLIENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/str.h"

#define HTTP_CLIENT_MAX_HEADERS 8

struct http_client;
struct http_client_transfer; /* one that runs; valid until its end is told */

struct http_client_request {
    const char *url;                              /* http:// or https:// */
    const char *headers[HTTP_CLIENT_MAX_HEADERS]; /* [n_headers] "Name: value" */
    int n_headers;
    const char *body; /* POST; NULL: GET */
    size_t n_body_bytes;
    int64_t timeout_ms; /* from start to the last byte; above 0 */
};

enum http_client_end {
    HTTP_CLIENT_DONE,      /* a whole reply, of any code */
    HTTP_CLIENT_NO_SERVER, /* no connection: name, port, TLS */
    HTTP_CLIENT_CUT,       /* the connection ended before the reply did */
    HTTP_CLIENT_TIMEOUT,
    HTTP_CLIENT_ENOUGH /* on_bytes wanted no more */
};

struct http_client_result {
    enum http_client_end end;
    int code;          /* 0: no status line came */
    int retry_after_s; /* -1: not told */
    char error[256];   /* libcurl's words; "" when DONE */
};

struct http_client_handlers {
    /* Bytes of the reply's body; code is its status. False: no more are wanted, the transfer ends as ENOUGH. */
    bool (*on_bytes)(void *owner, int code, const char *bytes, size_t n_bytes);
    /* Called once, from http_client_run. A new transfer may be started from it. */
    void (*on_end)(void *owner, const struct http_client_result *result);
};

/* Errors: STATUS_NOMEM; STATUS_IO with a note if libcurl is not there. */
WARN_UNUSED enum status http_client_create(struct http_client **out_client, int max_transfers,
                                           struct status_note *note);

/* Cuts what still runs; on_end is not called. */
void http_client_destroy(struct http_client **client);

/* *out_transfer may be NULL. Errors: STATUS_BUSY with max_transfers running; STATUS_INVALID with a note for a URL that
 * is none; STATUS_NOMEM. */
WARN_UNUSED enum status http_client_start(struct http_client *client, const struct http_client_request *request,
                                          const struct http_client_handlers *handlers, void *owner,
                                          struct http_client_transfer **out_transfer, struct status_note *note);

/* Closes its connection; on_end is not called. Not from its own handlers. */
void http_client_cancel(struct http_client *client, struct http_client_transfer **transfer);

/* Waits until something comes, at most timeout_ms, and hands it on. Returns how many transfers run. */
int http_client_run(struct http_client *client, int timeout_ms);

/* One request from start to end, beside which others are served. The body is put into out_body, whatever the code.
 * Errors: those of start; STATUS_PEER (no server, cut), STATUS_TIMEOUT, STATUS_LIMIT (more bytes than out_body takes),
 * with a note. */
WARN_UNUSED enum status http_client_fetch(struct http_client *client, const struct http_client_request *request,
                                          struct str *out_body, struct http_client_result *out_result,
                                          struct status_note *note);

#endif
