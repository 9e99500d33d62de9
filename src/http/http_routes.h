/* http_routes: method and path -> handler, from a table.
 *
 * A path of the table may end in a parameter, as "/v1/requests/{id}", which takes one segment. */
#ifndef KVICK_HTTP_HTTP_ROUTES_H
#define KVICK_HTTP_HTTP_ROUTES_H

#include "http/http_exchange.h"

/* parameter: the segment that stood for {name}; NULL if the path has none. */
typedef void http_route_fn(void *owner, struct http_exchange *exchange, const char *parameter);

struct http_route {
    const char *method, *path;
    http_route_fn *handle;
};

enum http_match { HTTP_MATCH_FOUND, HTTP_MATCH_NO_PATH, HTTP_MATCH_NO_METHOD };

/* routes: [n_routes]. HEAD finds what GET has. out_parameter points into path. */
enum http_match http_routes_find(const struct http_route *routes, int n_routes, const char *method, const char *path,
                                 const struct http_route **out_route, const char **out_parameter);

/* Writes the methods that the path has, as "GET, POST"; cut at max_bytes. */
void http_routes_allowed(const struct http_route *routes, int n_routes, const char *path, char *out, size_t max_bytes);

#endif
