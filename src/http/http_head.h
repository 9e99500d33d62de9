/* http_head: the head of a request, or of a reply, from bytes to fields.
 *
 * Strict wherever two readers could see two different requests: one length of the body, no bare line feeds, no folded
 * lines, no blanks in front of a colon. What is refused has the HTTP code that says so.
 * Thread: any.   Memory: none; fields point into the text.   Source: RFC 9110, RFC 9112. */
#ifndef KVICK_HTTP_HTTP_HEAD_H
#define KVICK_HTTP_HTTP_HEAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HTTP_HEAD_MAX_BYTES ((size_t)64 << 10)
#define HTTP_HEAD_MAX_HEADERS 100
#define HTTP_HEAD_MAX_METHOD_BYTES 16

enum http_body { HTTP_BODY_NONE, HTTP_BODY_LENGTH, HTTP_BODY_CHUNKED };

struct http_header {
    const char *name, *value; /* value: without blanks around it */
};

struct http_head {
    const char *method, *path; /* path: decoded; as it came where its escapes stand for nothing */
    const char *query;         /* undecoded; NULL: none */
    int minor_version;         /* of HTTP/1 */
    struct http_header headers[HTTP_HEAD_MAX_HEADERS];
    int n_headers;
    enum http_body body;
    uint64_t n_body_bytes; /* HTTP_BODY_LENGTH */
    bool keeps_alive;      /* the client would send another request on this connection */
    bool expects_continue; /* and waits for leave to send its body */
};

/* How many bytes the head has, its empty line included; 0: it is not whole yet. from: bytes known not to hold its end,
 * as told by an earlier call with fewer bytes (n_bytes of then). */
size_t http_head_end(const char *bytes, size_t n_bytes, size_t from);

/* text: [n_bytes + 1], a whole head; is written to. 0, or an HTTP code and in out_why the reason; then method, path and
 * headers hold what was read before the fault, "" or none otherwise. */
int http_head_parse(struct http_head *head, char *text, size_t n_bytes, const char **out_why);

/* Likewise of a reply: its code, 0 if it is none. */
int http_head_parse_reply(struct http_head *head, char *text, size_t n_bytes);

/* Any case of name; NULL: absent. Of several equal ones the first. */
const char *http_head_find(const struct http_head *head, const char *name);
int http_head_count(const struct http_head *head, const char *name);

/* What a hexadecimal digit stands for; -1 for another character. */
int http_head_hex(char c);

#endif
