#include "http/http_client.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#define CURL_DISABLE_TYPECHECK /* its macros take the place of the functions' names */
#include <curl/curl.h>

#include "base/mem.h"

#define CONNECT_MS 10000L
#define FETCH_WAIT_MS 1000

/* libcurl brings twenty libraries along. It is loaded when the first client is made, so that the start of a process
 * that needs none does not pay for them (3 ms, a tenth of SmolLM2's first token). */
#define LIBRARY "libcurl.so.4"
#define FUNCTIONS(XX)                                                                                                  \
    XX(global_init)                                                                                                    \
    XX(easy_init)                                                                                                      \
    XX(easy_reset)                                                                                                     \
    XX(easy_setopt)                                                                                                    \
    XX(easy_getinfo)                                                                                                   \
    XX(easy_strerror)                                                                                                  \
    XX(easy_cleanup)                                                                                                   \
    XX(slist_append)                                                                                                   \
    XX(slist_free_all)                                                                                                 \
    XX(multi_init)                                                                                                     \
    XX(multi_setopt)                                                                                                   \
    XX(multi_add_handle)                                                                                               \
    XX(multi_remove_handle)                                                                                            \
    XX(multi_perform)                                                                                                  \
    XX(multi_poll)                                                                                                     \
    XX(multi_info_read)                                                                                                \
    XX(multi_cleanup)

struct curl {
#define XX(name) __typeof__(&curl_##name) name;
    FUNCTIONS(XX)
#undef XX
};

struct http_client_transfer {
    struct http_client *client;
    CURL *easy; /* kept when it ends, for the next one */
    struct curl_slist *headers;
    struct http_client_handlers handlers;
    void *owner;
    bool is_running, is_enough;
    char error[CURL_ERROR_SIZE];
};

struct http_client {
    struct curl curl;
    CURLM *multi;
    int max_transfers, n_running;
    struct http_client_transfer transfers[];
};

/* ---- life ---- */

/* The library stays until the process ends. */
static enum status load_library(struct curl *curl, struct status_note *note) {
    void *library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
    if (!library)
        return status_fail(note, STATUS_IO, "%s cannot be loaded (Debian: package libcurl4): %s", LIBRARY, dlerror());
#define XX(name)                                                                                                       \
    void *name = dlsym(library, "curl_" #name);                                                                        \
    if (!name) return status_fail(note, STATUS_IO, "%s has no curl_%s", LIBRARY, #name);                               \
    memcpy(&curl->name, &name, sizeof name);
    FUNCTIONS(XX)
#undef XX
    if (curl->global_init(CURL_GLOBAL_DEFAULT)) return status_fail(note, STATUS_NOMEM, "libcurl cannot be set up");
    return STATUS_OK;
}

enum status http_client_create(struct http_client **out_client, int max_transfers, struct status_note *note) {
    REQUIRE(max_transfers >= 1);
    struct http_client *client =
        mem_alloc(sizeof *client + (size_t)max_transfers * sizeof(struct http_client_transfer));
    *out_client = client;
    if (!client) return status_fail(note, STATUS_NOMEM, "no memory for %d requests", max_transfers);
    client->max_transfers = max_transfers;
    enum status status = load_library(&client->curl, note);
    if (!status) {
        client->multi = client->curl.multi_init();
        if (!client->multi) status = status_fail(note, STATUS_NOMEM, "no memory for %d requests", max_transfers);
    }
    if (!status) client->curl.multi_setopt(client->multi, CURLMOPT_MAXCONNECTS, (long)max_transfers);
    if (status) http_client_destroy(out_client);
    return status;
}

static void end_transfer(struct http_client_transfer *transfer) {
    transfer->client->curl.multi_remove_handle(transfer->client->multi, transfer->easy);
    transfer->client->curl.slist_free_all(transfer->headers);
    transfer->headers = NULL;
    transfer->is_running = false;
    transfer->client->n_running--;
}

void http_client_destroy(struct http_client **client) {
    if (!*client) return;
    for (int i = 0; i < (*client)->max_transfers; i++) {
        struct http_client_transfer *transfer = &(*client)->transfers[i];
        if (transfer->is_running) end_transfer(transfer);
        if (transfer->easy) (*client)->curl.easy_cleanup(transfer->easy);
    }
    if ((*client)->multi) (*client)->curl.multi_cleanup((*client)->multi);
    mem_free(*client);
    *client = NULL;
}

/* ---- a transfer ---- */

static size_t on_body(char *bytes, size_t one, size_t n_bytes, void *owner) {
    struct http_client_transfer *transfer = owner;
    long code = 0;
    (void)one; /* always 1 */
    transfer->client->curl.easy_getinfo(transfer->easy, CURLINFO_RESPONSE_CODE, &code);
    if (transfer->handlers.on_bytes(transfer->owner, (int)code, bytes, n_bytes)) return n_bytes;
    transfer->is_enough = true;
    return n_bytes ? 0 : 1; /* another number than n_bytes ends it */
}

static bool is_loopback(const char *url) {
    static const char *const hosts[] = {"127.0.0.1", "localhost", "[::1]"};
    const char *host = strstr(url, "://");
    for (size_t i = 0; host && i < sizeof hosts / sizeof hosts[0]; i++) {
        size_t n = strlen(hosts[i]);
        if (strncmp(host + 3, hosts[i], n) == 0 && (host[3 + n] == 0 || strchr(":/?", host[3 + n]))) return true;
    }
    return false;
}

static bool add_header(struct http_client_transfer *transfer, const char *line) {
    struct curl_slist *longer = transfer->client->curl.slist_append(transfer->headers, line);
    if (longer) transfer->headers = longer;
    return longer != NULL;
}

/* All options: the handle may have served another request. */
static bool set_up(struct http_client_transfer *transfer, const struct http_client_request *request) {
    const struct curl *curl = &transfer->client->curl;
    CURL *easy = transfer->easy;
    bool is_set = true;
    curl->easy_reset(easy);
    transfer->error[0] = 0;
    for (int i = 0; i < request->n_headers; i++) is_set = is_set && add_header(transfer, request->headers[i]);
    if (request->body) {
        /* "Expect" waits a second for servers that do not answer it. */
        is_set = is_set && add_header(transfer, "Expect:");
        is_set = is_set && !curl->easy_setopt(easy, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)request->n_body_bytes) &&
                 !curl->easy_setopt(easy, CURLOPT_POSTFIELDS, request->body);
    }
    if (is_loopback(request->url)) is_set = is_set && !curl->easy_setopt(easy, CURLOPT_PROXY, "");
    return is_set && !curl->easy_setopt(easy, CURLOPT_URL, request->url) &&
           !curl->easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https") &&
           !curl->easy_setopt(easy, CURLOPT_HTTP_VERSION, CURL_HTTP_VERSION_1_1) &&
           !curl->easy_setopt(easy, CURLOPT_USERAGENT, "kvick/" KVICK_VERSION) &&
           !curl->easy_setopt(easy, CURLOPT_HTTPHEADER, transfer->headers) &&
           !curl->easy_setopt(easy, CURLOPT_NOSIGNAL, 1L) &&
           !curl->easy_setopt(easy, CURLOPT_CONNECTTIMEOUT_MS, CONNECT_MS) &&
           !curl->easy_setopt(easy, CURLOPT_TIMEOUT_MS,
                              (long)(request->timeout_ms < LONG_MAX ? request->timeout_ms : LONG_MAX)) &&
           !curl->easy_setopt(easy, CURLOPT_ERRORBUFFER, transfer->error) &&
           !curl->easy_setopt(easy, CURLOPT_PRIVATE, transfer) &&
           !curl->easy_setopt(easy, CURLOPT_WRITEFUNCTION, on_body) &&
           !curl->easy_setopt(easy, CURLOPT_WRITEDATA, transfer);
}

static struct http_client_transfer *find_free(struct http_client *client) {
    for (int i = 0; i < client->max_transfers; i++)
        if (!client->transfers[i].is_running) return &client->transfers[i];
    return NULL;
}

enum status http_client_start(struct http_client *client, const struct http_client_request *request,
                              const struct http_client_handlers *handlers, void *owner,
                              struct http_client_transfer **out_transfer, struct status_note *note) {
    REQUIRE(request->timeout_ms > 0 && request->n_headers <= HTTP_CLIENT_MAX_HEADERS);
    if (strncmp(request->url, "http://", 7) != 0 && strncmp(request->url, "https://", 8) != 0)
        return status_fail(note, STATUS_INVALID, "'%s' does not begin with http:// or https://", request->url);
    struct http_client_transfer *transfer = find_free(client);
    if (!transfer)
        return status_fail(note, STATUS_BUSY, "%d requests are under way, no more are sent", client->max_transfers);
    if (!transfer->easy) transfer->easy = client->curl.easy_init();
    if (!transfer->easy) return status_fail(note, STATUS_NOMEM, "no memory for a request");
    transfer->client = client;
    transfer->handlers = *handlers;
    transfer->owner = owner;
    transfer->is_enough = false;
    if (!set_up(transfer, request) || client->curl.multi_add_handle(client->multi, transfer->easy)) {
        transfer->client->curl.slist_free_all(transfer->headers);
        transfer->headers = NULL;
        return status_fail(note, STATUS_NOMEM, "a request to %s cannot be made", request->url);
    }
    transfer->is_running = true;
    client->n_running++;
    if (out_transfer) *out_transfer = transfer;
    return STATUS_OK;
}

void http_client_cancel(struct http_client *client, struct http_client_transfer **transfer) {
    REQUIRE((*transfer)->client == client);
    if ((*transfer)->is_running) end_transfer(*transfer);
    *transfer = NULL;
}

/* ---- the loop ---- */

static enum http_client_end end_of(const struct http_client_transfer *transfer, CURLcode code) {
    switch (code) {
    case CURLE_OK: return HTTP_CLIENT_DONE;
    case CURLE_OPERATION_TIMEDOUT: return HTTP_CLIENT_TIMEOUT;
    case CURLE_WRITE_ERROR: return transfer->is_enough ? HTTP_CLIENT_ENOUGH : HTTP_CLIENT_CUT;
    case CURLE_COULDNT_CONNECT:
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_COULDNT_RESOLVE_PROXY:
    case CURLE_URL_MALFORMAT:
    case CURLE_UNSUPPORTED_PROTOCOL:
    case CURLE_SSL_CONNECT_ERROR:
    case CURLE_PEER_FAILED_VERIFICATION: return HTTP_CLIENT_NO_SERVER;
    default: return HTTP_CLIENT_CUT;
    }
}

static void tell_end(struct http_client_transfer *transfer, CURLcode code) {
    struct http_client_result result = {.end = end_of(transfer, code), .retry_after_s = -1};
    long http_code = 0;
    curl_off_t retry_after_s = 0;
    transfer->client->curl.easy_getinfo(transfer->easy, CURLINFO_RESPONSE_CODE, &http_code);
    if (!transfer->client->curl.easy_getinfo(transfer->easy, CURLINFO_RETRY_AFTER, &retry_after_s) && retry_after_s > 0)
        result.retry_after_s = retry_after_s < INT_MAX ? (int)retry_after_s : INT_MAX;
    result.code = (int)http_code;
    if (result.end != HTTP_CLIENT_DONE)
        snprintf(result.error, sizeof result.error, "%s",
                 transfer->error[0] ? transfer->error : transfer->client->curl.easy_strerror(code));
    end_transfer(transfer);
    transfer->handlers.on_end(transfer->owner, &result);
}

/* What the whole of libcurl cannot do (no memory) ends all that runs. */
static void end_all(struct http_client *client) {
    for (int i = 0; i < client->max_transfers; i++)
        if (client->transfers[i].is_running) tell_end(&client->transfers[i], CURLE_OUT_OF_MEMORY);
}

int http_client_run(struct http_client *client, int timeout_ms) {
    int n_running = 0, n_left = 0;
    CURLMsg *message;
    CURLMcode code = client->curl.multi_perform(client->multi, &n_running);
    if (!code && n_running == client->n_running && timeout_ms > 0) {
        code = client->curl.multi_poll(client->multi, NULL, 0, timeout_ms, NULL);
        if (!code) code = client->curl.multi_perform(client->multi, &n_running);
    }
    if (code) end_all(client);
    while ((message = client->curl.multi_info_read(client->multi, &n_left))) {
        void *transfer = NULL;
        if (message->msg != CURLMSG_DONE) continue;
        client->curl.easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, &transfer);
        tell_end(transfer, message->data.result);
    }
    return client->n_running;
}

/* ---- one request ---- */

struct fetch {
    struct str *body;
    enum status status;
    struct http_client_result result;
    bool is_ended;
};

static bool on_fetched(void *owner, int code, const char *bytes, size_t n_bytes) {
    struct fetch *fetch = owner;
    (void)code;
    fetch->status = str_append(fetch->body, bytes, n_bytes);
    return fetch->status == STATUS_OK;
}

static void on_fetch_end(void *owner, const struct http_client_result *result) {
    struct fetch *fetch = owner;
    fetch->result = *result;
    fetch->is_ended = true;
}

enum status http_client_fetch(struct http_client *client, const struct http_client_request *request,
                              struct str *out_body, struct http_client_result *out_result, struct status_note *note) {
    static const struct http_client_handlers handlers = {on_fetched, on_fetch_end};
    struct fetch fetch = {.body = out_body};
    enum status status = http_client_start(client, request, &handlers, &fetch, NULL, note);
    if (status) return status;
    while (!fetch.is_ended) http_client_run(client, FETCH_WAIT_MS);
    *out_result = fetch.result;
    if (fetch.status)
        return status_fail(note, fetch.status, "the reply of %s has more than %zu bytes", request->url,
                           out_body->max_bytes);
    if (fetch.result.end == HTTP_CLIENT_DONE) return STATUS_OK;
    return status_fail(note, fetch.result.end == HTTP_CLIENT_TIMEOUT ? STATUS_TIMEOUT : STATUS_PEER, "%s: %s",
                       request->url, fetch.result.error);
}
