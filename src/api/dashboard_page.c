#include "api/dashboard_page.h"

#include <string.h>

/* The page's own policy names its script and its style by digest; this one holds whatever the page says. */
#define POLICY "default-src 'self' 'unsafe-inline' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

#ifdef KVICK_DASHBOARD_FILE
/* The assembler puts the file in as it is, gzip; CMakeLists.txt says that this source depends on it. */
__asm__(".pushsection .rodata\n"
        "dashboard_page_begin: .incbin \"" KVICK_DASHBOARD_FILE "\"\n"
        "dashboard_page_end: .byte 0\n"
        ".popsection\n");

extern const char dashboard_page_begin[], dashboard_page_end[];

static const char *page(size_t *out_n_bytes) {
    *out_n_bytes = (size_t)(dashboard_page_end - dashboard_page_begin);
    return dashboard_page_begin;
}
#else
static const char *page(size_t *out_n_bytes) {
    *out_n_bytes = 0;
    return NULL;
}
#endif

static bool takes_gzip(const struct http_exchange *exchange) {
    const char *accepted = http_exchange_header(exchange, "Accept-Encoding");
    return accepted && strstr(accepted, "gzip");
}

static void reply_line(struct http_exchange *exchange, int code, const char *line) {
    http_exchange_reply(exchange, code, "text/plain; charset=utf-8", line, strlen(line));
}

void dashboard_page_reply(struct http_exchange *exchange) {
    size_t n_bytes;
    const char *bytes = page(&n_bytes);
    http_exchange_set_header(exchange, "Cache-Control", "no-store");
    http_exchange_set_header(exchange, "X-Content-Type-Options", "nosniff");
    http_exchange_set_header(exchange, "Content-Security-Policy", POLICY);
    http_exchange_set_header(exchange, "Referrer-Policy", "no-referrer");
    if (!bytes) {
        reply_line(exchange, 200, "This build has no dashboard: with node and npm there, make web && make build.\n");
    } else if (!takes_gzip(exchange)) {
        reply_line(exchange, 406, "The dashboard is sent as gzip, which Accept-Encoding must allow.\n");
    } else {
        http_exchange_set_header(exchange, "Content-Encoding", "gzip");
        http_exchange_reply(exchange, 200, "text/html; charset=utf-8", bytes, n_bytes);
    }
}
