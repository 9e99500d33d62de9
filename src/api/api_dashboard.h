/* api_dashboard: what the dashboard shows: GET /debug/dashboard, which it asks for once a second, and its page.
 *
 * A reply has what is new since the numbers that were asked with, and is bounded whatever they are. Never a text, a key
 * or a salt.   Thread: io.   Memory: fixed at create. */
#ifndef KVICK_API_API_DASHBOARD_H
#define KVICK_API_API_DASHBOARD_H

#include "engine/block_map.h"
#include "http/http_routes.h"
#include "observe/live_history.h"

#define API_DASHBOARD_PAGE_PATH "/dashboard"
#define API_DASHBOARD_CHAT_PATH "/v1/chat/completions" /* answered at the operator's door too, by the API's rules */

struct api_call;
struct api_server;

struct api_dashboard {
    int64_t origin_ns; /* times in replies count from here */
    struct live_history live;
    struct block_map map;
    int64_t map_step; /* the step after which the map was asked for */
};

/* Errors: STATUS_NOMEM. The engine that fills the map must end before destroy. */
WARN_UNUSED enum status api_dashboard_create(struct api_dashboard **out_dashboard);
void api_dashboard_destroy(struct api_dashboard **dashboard);

/* Once a second. */
void api_dashboard_sample(struct api_server *api, const struct engine_stats *stats, int64_t now_ns);

/* Replies of the routes below /debug/; all end the exchange. */
void api_dashboard_reply(struct api_server *api, struct http_exchange *exchange);
/* ?chunked=0 or 1, of a server that is for showing. */
void api_dashboard_reply_chunking(struct api_server *api, struct http_exchange *exchange);

#endif
