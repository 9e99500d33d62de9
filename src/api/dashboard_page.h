/* dashboard_page: the dashboard's page, as scripts/build-web made it; a build without it has a line that says how.
 *
 * Thread: any. */
#ifndef KVICK_API_DASHBOARD_PAGE_H
#define KVICK_API_DASHBOARD_PAGE_H

#include "http/http_exchange.h"

/* Ends the exchange. */
void dashboard_page_reply(struct http_exchange *exchange);

#endif
