/* api_routes: which handler answers which method and path; the list of what this server speaks.
 *
 * Thread: io. */
#ifndef KVICK_API_API_ROUTES_H
#define KVICK_API_API_ROUTES_H

#include "api/api_server.h"
#include "http/http_routes.h"

/* [*out_n] */
const struct http_route *api_routes_table(int *out_n);

#endif
