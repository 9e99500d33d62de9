#include "http/http_routes.h"

#include <stdio.h>
#include <string.h>

/* Whether a path of the table stands for this one; its parameter. */
static bool is_path(const char *pattern, const char *path, const char **out_parameter) {
    const char *brace = strchr(pattern, '{');
    *out_parameter = NULL;
    if (!brace) return strcmp(pattern, path) == 0;
    size_t n_prefix = (size_t)(brace - pattern);
    if (strncmp(pattern, path, n_prefix) != 0 || !path[n_prefix] || strchr(path + n_prefix, '/')) return false;
    *out_parameter = path + n_prefix;
    return true;
}

enum http_match http_routes_find(const struct http_route *routes, int n_routes, const char *method, const char *path,
                                 const struct http_route **out_route, const char **out_parameter) {
    enum http_match match = HTTP_MATCH_NO_PATH;
    const char *wanted = strcmp(method, "HEAD") == 0 ? "GET" : method;
    for (int i = 0; i < n_routes; i++) {
        if (!is_path(routes[i].path, path, out_parameter)) continue;
        match = HTTP_MATCH_NO_METHOD;
        if (strcmp(routes[i].method, wanted) != 0) continue;
        *out_route = &routes[i];
        return HTTP_MATCH_FOUND;
    }
    return match;
}

void http_routes_allowed(const struct http_route *routes, int n_routes, const char *path, char *out, size_t max_bytes) {
    const char *parameter;
    size_t n = 0;
    out[0] = 0;
    for (int i = 0; i < n_routes; i++) {
        if (!is_path(routes[i].path, path, &parameter)) continue;
        int n_written = snprintf(out + n, max_bytes - n, "%s%s", n ? ", " : "", routes[i].method);
        if (n_written < 0 || (size_t)n_written >= max_bytes - n) return;
        n += (size_t)n_written;
    }
}
