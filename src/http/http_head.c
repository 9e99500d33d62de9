#include "http/http_head.h"

#include <string.h>
#include <strings.h>

#define MAX_LENGTH_DIGITS 15 /* a petabyte: whoever holds bodies has a limit far below */

/* ---- the end ---- */

size_t http_head_end(const char *bytes, size_t n_bytes, size_t from) {
    size_t i = from > 3 ? from - 3 : 0;
    const char *feed;
    while (i < n_bytes && (feed = memchr(bytes + i, '\n', n_bytes - i)) != NULL) {
        size_t next = (size_t)(feed - bytes) + 1;
        if (next < n_bytes && bytes[next] == '\n') return next + 1;
        if (next + 1 < n_bytes && bytes[next] == '\r' && bytes[next + 1] == '\n') return next + 2;
        i = next;
    }
    return 0;
}

/* ---- characters ---- */

static bool is_token(const char *text, size_t n_bytes) {
    static const char others[] = "!#$%&'*+-.^_`|~";
    for (size_t i = 0; i < n_bytes; i++) {
        char c = text[i];
        bool is_letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'), is_digit = c >= '0' && c <= '9';
        if (!is_letter && !is_digit && (c == 0 || !strchr(others, c))) return false;
    }
    return n_bytes > 0;
}

static bool has_control(const char *text, size_t n_bytes, bool allows_tab) {
    for (size_t i = 0; i < n_bytes; i++)
        if (((unsigned char)text[i] < ' ' && !(allows_tab && text[i] == '\t')) || text[i] == 0x7f) return true;
    return false;
}

int http_head_hex(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* In place. A path whose escapes stand for nothing (bad digits, a NUL) stays as it is, and so finds no route. */
static void decode_path(char *path) {
    char *out = path;
    for (const char *in = path; *in; in++)
        if (*in == '%' &&
            (http_head_hex(in[1]) < 0 || http_head_hex(in[2]) < 0 || http_head_hex(in[1]) + http_head_hex(in[2]) == 0))
            return;
    for (const char *in = path; *in; in++) {
        bool is_escape = *in == '%';
        *out++ = is_escape ? (char)(http_head_hex(in[1]) * 16 + http_head_hex(in[2])) : *in;
        if (is_escape) in += 2;
    }
    *out = 0;
}

/* ---- lines ---- */

/* The next line as a string, its end cut off; NULL if it is not ended by CR LF or holds another CR or a NUL. */
static char *next_line(char **at, const char *end, size_t *out_n) {
    char *line = *at, *feed = memchr(line, '\n', (size_t)(end - line));
    if (!feed || feed == line || feed[-1] != '\r') return NULL;
    size_t n = (size_t)(feed - line) - 1;
    if (memchr(line, '\r', n) || memchr(line, 0, n)) return NULL;
    line[n] = 0;
    *at = feed + 1;
    *out_n = n;
    return line;
}

static int refuse(int code, const char **out_why, const char *why) {
    *out_why = why;
    return code;
}

/* "http://host/path" is "/path": what proxies are sent, and a server must take. */
static char *skip_origin(char *target) {
    static const char *const schemes[] = {"http://", "https://"};
    static char root[] = "/";
    for (int i = 0; i < 2; i++) {
        size_t n = strlen(schemes[i]);
        if (strncasecmp(target, schemes[i], n) != 0) continue;
        char *path = target + n + strcspn(target + n, "/?");
        if (*path == '/') return path;
        return *path ? NULL : root;
    }
    return target;
}

static int read_request_line(struct http_head *head, char *line, size_t n_bytes, const char **out_why) {
    char *target = memchr(line, ' ', n_bytes), *version = target ? strchr(target + 1, ' ') : NULL;
    if (!version || strchr(version + 1, ' ') || has_control(line, n_bytes, false))
        return refuse(400, out_why, "the request line is not METHOD TARGET HTTP/1.1");
    *target++ = *version++ = 0;
    if (!is_token(line, strlen(line)) || strlen(line) > HTTP_HEAD_MAX_METHOD_BYTES)
        return refuse(400, out_why, "the method is none");
    head->method = line;
    if (strncmp(version, "HTTP/", 5) != 0) return refuse(400, out_why, "the request line does not end in HTTP/1.1");
    if (strcmp(version, "HTTP/1.1") != 0 && strcmp(version, "HTTP/1.0") != 0)
        return refuse(505, out_why, "only HTTP/1.1 and HTTP/1.0 are spoken here");
    head->minor_version = version[7] - '0';
    if (strcmp(target, "*") != 0) target = skip_origin(target);
    if (!target || (*target != '/' && strcmp(target, "*") != 0) || strchr(target, '#'))
        return refuse(400, out_why, "the target must be a path");
    char *query = strchr(target, '?');
    if (query) *query++ = 0;
    if (strchr(target, '%')) decode_path(target);
    head->path = target;
    head->query = query;
    return 0;
}

static int read_header(struct http_head *head, char *line, size_t n_bytes, const char **out_why) {
    char *colon = memchr(line, ':', n_bytes);
    if (!colon || !is_token(line, (size_t)(colon - line)))
        return refuse(400, out_why, "a header is not NAME: VALUE on one line");
    *colon = 0;
    char *value = colon + 1 + strspn(colon + 1, " \t"), *end = line + n_bytes;
    while (end > value && (end[-1] == ' ' || end[-1] == '\t')) *--end = 0;
    if (has_control(value, (size_t)(end - value), true))
        return refuse(400, out_why, "a header holds a control character");
    if (head->n_headers == HTTP_HEAD_MAX_HEADERS) return refuse(431, out_why, "there are more than 100 headers");
    head->headers[head->n_headers++] = (struct http_header){line, value};
    return 0;
}

/* ---- what the headers say ---- */

const char *http_head_find(const struct http_head *head, const char *name) {
    for (int i = 0; i < head->n_headers; i++)
        if (strcasecmp(head->headers[i].name, name) == 0) return head->headers[i].value;
    return NULL;
}

int http_head_count(const struct http_head *head, const char *name) {
    int n = 0;
    for (int i = 0; i < head->n_headers; i++) n += strcasecmp(head->headers[i].name, name) == 0;
    return n;
}

/* Whether one of the words between commas of any header of that name is word. */
static bool has_word(const struct http_head *head, const char *name, const char *word) {
    size_t n_word = strlen(word);
    for (int i = 0; i < head->n_headers; i++) {
        if (strcasecmp(head->headers[i].name, name) != 0) continue;
        for (const char *at = head->headers[i].value; *at;) {
            at += strspn(at, " \t,");
            size_t n = strcspn(at, " \t,");
            if (n == n_word && strncasecmp(at, word, n) == 0) return true;
            at += n;
        }
    }
    return false;
}

/* Where the body ends must not depend on who reads: a proxy in front would take the rest for another request. */
static int read_body_form(struct http_head *head, const char **out_why) {
    const char *length = http_head_find(head, "Content-Length"), *coding = http_head_find(head, "Transfer-Encoding");
    if (http_head_count(head, "Content-Length") > 1 || http_head_count(head, "Transfer-Encoding") > 1 ||
        (length && coding))
        return refuse(400, out_why, "the end of the body is not clear: one Content-Length, or Transfer-Encoding");
    if (coding) {
        if (strcasecmp(coding, "chunked") != 0 || head->minor_version == 0)
            return refuse(400, out_why, "the only Transfer-Encoding is chunked, in HTTP/1.1");
        head->body = HTTP_BODY_CHUNKED;
    } else if (length) {
        size_t n = strlen(length);
        if (n == 0 || strspn(length, "0123456789") != n) return refuse(400, out_why, "Content-Length is no number");
        while (n > 1 && *length == '0') length++, n--;
        if (n > MAX_LENGTH_DIGITS) return refuse(413, out_why, "the body is too large");
        for (; *length; length++) head->n_body_bytes = head->n_body_bytes * 10 + (uint64_t)(*length - '0');
        head->body = head->n_body_bytes ? HTTP_BODY_LENGTH : HTTP_BODY_NONE;
    }
    return 0;
}

static int read_connection(struct http_head *head, const char **out_why) {
    const char *expected = http_head_find(head, "Expect");
    head->keeps_alive =
        head->minor_version == 1 ? !has_word(head, "Connection", "close") : has_word(head, "Connection", "keep-alive");
    if (expected && strcasecmp(expected, "100-continue") != 0)
        return refuse(417, out_why, "the only expectation is 100-continue");
    head->expects_continue = expected && head->minor_version == 1 && head->body != HTTP_BODY_NONE;
    if (head->minor_version == 1 && http_head_count(head, "Host") != 1)
        return refuse(400, out_why, "HTTP/1.1 needs one Host");
    return 0;
}

static int read_headers(struct http_head *head, char *at, const char *end, const char **out_why) {
    size_t n = 0;
    int code = 0;
    while (!code) {
        char *line = next_line(&at, end, &n);
        if (!line) return refuse(400, out_why, "a line must end in CR LF");
        if (n == 0) return read_body_form(head, out_why);
        code = read_header(head, line, n, out_why);
    }
    return code;
}

int http_head_parse(struct http_head *head, char *text, size_t n_bytes, const char **out_why) {
    char *at = text;
    size_t n = 0;
    *head = (struct http_head){.method = "", .path = "", .minor_version = 1};
    char *line = next_line(&at, text + n_bytes, &n);
    int code = line ? read_request_line(head, line, n, out_why) : refuse(400, out_why, "a line must end in CR LF");
    if (!code) code = read_headers(head, at, text + n_bytes, out_why);
    return code ? code : read_connection(head, out_why);
}

int http_head_parse_reply(struct http_head *head, char *text, size_t n_bytes) {
    char *at = text;
    const char *why;
    size_t n = 0;
    *head = (struct http_head){.method = "", .path = ""};
    char *line = next_line(&at, text + n_bytes, &n);
    bool is_reply = line && n >= 12 && strncmp(line, "HTTP/1.", 7) == 0 && (line[7] == '0' || line[7] == '1') &&
                    line[8] == ' ' && strspn(line + 9, "0123456789") == 3 && (line[12] == ' ' || line[12] == 0);
    if (!is_reply) return 0;
    head->minor_version = line[7] - '0';
    if (read_headers(head, at, text + n_bytes, &why)) return 0;
    return (line[9] - '0') * 100 + (line[10] - '0') * 10 + line[11] - '0';
}
