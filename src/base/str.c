#include "base/str.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"

static char nothing[1];

void str_init(struct str *str, size_t max_bytes) {
    *str = (struct str){.ptr = nothing, .max_bytes = max_bytes};
}

void str_deinit(struct str *str) {
    if (str->cap_bytes) mem_free(str->ptr);
    str_init(str, str->max_bytes);
}

static enum status reserve(struct str *str, size_t n_more) {
    if (n_more > str->max_bytes - str->n_bytes) return STATUS_LIMIT;
    size_t need = str->n_bytes + n_more + 1; /* wraps to 0 where max_bytes is SIZE_MAX */
    if (need == 0) return STATUS_LIMIT;
    if (need <= str->cap_bytes) return STATUS_OK;
    size_t cap = str->cap_bytes * 2 > need ? str->cap_bytes * 2 : need < 64 ? 64 : need;
    if (cap > str->max_bytes) cap = need > str->max_bytes ? need : str->max_bytes; /* the bound is on memory, too */
    char *p = mem_resize_array(str->cap_bytes ? str->ptr : NULL, cap, 1);
    if (!p) return STATUS_NOMEM;
    if (!str->cap_bytes) p[0] = 0;
    str->ptr = p;
    str->cap_bytes = cap;
    return STATUS_OK;
}

enum status str_append(struct str *str, const char *bytes, size_t n_bytes) {
    enum status status = reserve(str, n_bytes);
    if (status) return status;
    if (n_bytes) memcpy(str->ptr + str->n_bytes, bytes, n_bytes);
    str->n_bytes += n_bytes;
    str->ptr[str->n_bytes] = 0;
    return STATUS_OK;
}

enum status str_append_text(struct str *str, const char *text) {
    return str_append(str, text, strlen(text));
}

enum status str_append_fmt(struct str *str, const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    int n = vsnprintf(NULL, 0, fmt, args);
    va_end(args);
    if (n < 0) return STATUS_INVALID;
    enum status status = reserve(str, (size_t)n);
    if (status) return status;
    va_start(args, fmt);
    vsnprintf(str->ptr + str->n_bytes, (size_t)n + 1, fmt, args);
    va_end(args);
    str->n_bytes += (size_t)n;
    return STATUS_OK;
}

void str_clear(struct str *str) {
    str->n_bytes = 0;
    if (str->cap_bytes) str->ptr[0] = 0;
}

char *str_take(struct str *str) {
    char *p = str->cap_bytes ? str->ptr : mem_strdup("");
    if (p) str_init(str, str->max_bytes);
    return p;
}

bool str_read_count(const char *text, int64_t max, int64_t *out) {
    int64_t value = 0;
    if (!*text) return false;
    for (; *text; text++) {
        int digit = *text - '0';
        if (digit < 0 || digit > 9 || digit > max || value > (max - digit) / 10) return false;
        value = value * 10 + digit;
    }
    *out = value;
    return true;
}
