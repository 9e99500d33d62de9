#include "bench/report_page.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "bench/svg.h"

#define MAX_TEXT_BYTES 2000

static const char style[] =
    ":root{color-scheme:light dark;--bg:#fff;--text:#1c2024;--dim:#5b646e;--line:#dfe4e9;--soft:#f5f7f9}"
    "@media (prefers-color-scheme:dark){:root{--bg:#14171a;--text:#e8ebee;--dim:#a4adb7;--line:#2c333a;--soft:#1b1f24}}"
    "body{margin:0;background:var(--bg);color:var(--text);font:16px/1.5 system-ui,-apple-system,'Segoe UI','DejaVu "
    "Sans',sans-serif}main{max-width:860px;margin:0 auto;padding:28px 20px 60px}h1{font-size:28px;line-height:1.2;"
    "margin:0 0 6px}h2{font-size:20px;margin:38px 0 6px}p{margin:6px 0 "
    "12px}.dim{color:var(--dim);font-size:15px;margin:4px 0}.lead{color:var(--dim);margin-bottom:24px;"
    "overflow-wrap:anywhere}figure{margin:0 0 14px}figcaption{margin:2px 0 0;font-size:17px}"
    ".wrap{overflow-x:auto;margin:10px 0 18px}table{border-collapse:collapse;width:100%;font-variant-numeric:"
    "tabular-nums;font-size:15px}th,td{padding:6px 8px;"
    "border-bottom:1px solid var(--line);text-align:right;white-space:nowrap}th:first-child,td:first-child{text-align:"
    "left;padding-left:0}th{font-weight:600;color:var(--dim);white-space:normal;vertical-align:bottom}ul{padding-left:"
    "20px}li{margin:6px 0}code{background:"
    "var(--soft);padding:1px 5px;border-radius:4px;font-size:14px;overflow-wrap:anywhere}"
    "@media print{main{max-width:none}}";

static void put(struct report_page *page, const char *text) {
    if (!page->status) page->status = str_append_text(page->out, text);
}

static void put_escaped(struct report_page *page, const char *text) {
    if (!page->status) page->status = svg_escape(page->out, text);
}

void report_page_begin(struct report_page *page, struct str *out, const char *title) {
    *page = (struct report_page){.out = out};
    put(page, "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
              "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>");
    put_escaped(page, title);
    put(page, "</title>\n<style>");
    put(page, style);
    put(page, svg_style);
    put(page, "</style>\n</head>\n<body>\n<main>\n<h1>");
    put_escaped(page, title);
    put(page, "</h1>\n");
}

enum status report_page_end(struct report_page *page) {
    put(page, "</main>\n</body>\n</html>\n");
    return page->status;
}

void report_page_raw(struct report_page *page, const char *html) {
    put(page, html);
}

void report_page_text(struct report_page *page, const char *tag, const char *fmt, ...) {
    char text[MAX_TEXT_BYTES], name[16];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    snprintf(name, sizeof name, "%.*s", (int)strcspn(tag, " "), tag);
    put(page, "<");
    put(page, tag);
    put(page, ">");
    put_escaped(page, text);
    put(page, "</");
    put(page, name);
    put(page, ">\n");
}

void report_page_lead(struct report_page *page, const char *server, const char *machine) {
    char date[32] = "";
    time_t now = time(NULL);
    struct tm utc;
    if (gmtime_r(&now, &utc)) strftime(date, sizeof date, "%Y-%m-%d %H:%M UTC", &utc);
    report_page_text(page, "p class=lead", "%s%s%s, %s", server, machine ? ", " : "", machine ? machine : "", date);
}

void report_page_command(struct report_page *page, const char *command) {
    put(page, "<p><code>");
    put_escaped(page, command);
    put(page, "</code></p>\n");
}

void report_page_figure(struct report_page *page, struct str *figure, enum status status, const char *caption) {
    if (!page->status) page->status = status;
    put(page, "<figure>\n");
    put(page, figure->ptr);
    report_page_text(page, "figcaption", "%s", caption);
    put(page, "</figure>\n");
    str_deinit(figure);
}

/* ---- tables ---- */

void report_page_table(struct report_page *page, const char *caption, const char *const *headers, int n) {
    report_page_text(page, "p class=dim", "%s", caption);
    put(page, "<div class=\"wrap\"><table>\n<thead><tr>");
    for (int i = 0; i < n; i++) {
        put(page, "<th scope=\"col\">");
        put_escaped(page, headers[i]);
        put(page, "</th>");
    }
    put(page, "</tr></thead>\n<tbody>");
}

void report_page_row(struct report_page *page) {
    put(page, "\n<tr>"); /* HTML closes it by itself */
}

void report_page_cell(struct report_page *page, const char *fmt, ...) {
    char text[MAX_TEXT_BYTES];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    put(page, "<td>");
    put_escaped(page, text);
    put(page, "</td>");
}

void report_page_end_table(struct report_page *page) {
    put(page, "\n</tbody></table></div>\n");
}
