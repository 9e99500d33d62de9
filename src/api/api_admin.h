/* api_admin: what the operator may see of all keys: routes below /debug/, beside /metrics.
 *
 * They are no part of the API that clients use: answered at --admin-listen, or where there is none for keys that may
 * see what others do. Never a text, a key or a salt. Thread: io. */
#ifndef KVICK_API_API_ADMIN_H
#define KVICK_API_API_ADMIN_H

#include "http/http_routes.h"

/* owner of the handlers: the api_server. */
const struct http_route *api_admin_table(int *out_n);

/* Whether a path shows what all keys do. */
bool api_admin_is_path(const char *path);

#endif
