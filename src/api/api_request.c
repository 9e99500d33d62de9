#include "api/api_request.h"

#include <string.h>

#include "api/api_response.h"
#include "base/mem.h"

bool api_request_parse(struct api_request *request, struct api_server *api, const struct api_ask *ask, const char *body,
                       size_t n_bytes, struct api_fault *fault) {
    *request =
        (struct api_request){.api = api, .body = body, .n_bytes = n_bytes, .max_ids = engine_max_context(api->engine)};
    request->json = json_read_object(body, n_bytes, fault);
    if (!request->json || !ask->translate) return request->json != NULL;
    json_t *translation = ask->translate(request->json, fault);
    json_decref(request->json);
    request->json = translation;
    request->body = NULL;
    return translation != NULL;
}

void api_request_deinit(struct api_request *request) {
    api_call_free_prompts(request->prompts, request->n_prompts, request->params.n);
    api_params_deinit(&request->params);
    json_decref(request->json);
    *request = (struct api_request){.api = request->api};
}

/* JSON, parameters, model, own fields, prompts. */
static bool read_all(struct api_request *request, struct api_server *api, const struct api_ask *ask, const char *body,
                     size_t n_bytes, struct api_fault *fault) {
    return api_request_parse(request, api, ask, body, n_bytes, fault) &&
           api_params_read(&request->params, request->json, ask->response->kind, tokenizer_n_vocab(api->tokenizer),
                           fault) &&
           api_server_check_model(api, &request->params, fault) && (!ask->check || ask->check(request, fault)) &&
           ask->read_prompts(request, fault);
}

bool api_request_start(struct api_server *api, const struct api_origin *origin, const struct api_ask *ask,
                       const char *body, size_t n_bytes, struct api_fault *fault) {
    struct api_request request;
    struct api_call *call = NULL;
    if (read_all(&request, api, ask, body, n_bytes, fault))
        call = api_call_open(origin, &request, ask->response, fault);
    if (call)
        api_call_start(call);
    else
        api_request_deinit(&request);
    return call != NULL;
}

void api_request_handle(struct api_server *api, struct http_exchange *exchange, const struct api_ask *ask) {
    struct api_fault fault = {0};
    size_t n_bytes;
    const char *body = http_exchange_body(exchange, &n_bytes);
    struct api_origin origin = {.exchange = exchange,
                                .path = http_exchange_path(exchange),
                                .key_idx = api_auth_key_of(&api->auth, exchange),
                                .received_ns = http_exchange_received_ns(exchange),
                                .read_ns = http_exchange_read_ns(exchange)};
    if (api_request_start(api, &origin, ask, body, n_bytes, &fault))
        http_exchange_drop_body(exchange); /* what is needed of it is copied */
    else
        api_fault_reply(&fault, ask->response->shape, exchange);
}

/* Whether the outermost object has the name; nothing is parsed. */
static bool has_name(const char *body, size_t n_bytes, const char *name) {
    size_t n_name = strlen(name), from = 0;
    int depth = 0;
    bool in_text = false;
    for (size_t i = 0; i < n_bytes; i++) {
        char c = body[i];
        if (in_text && c == '\\') {
            i++;
        } else if (c == '"') {
            in_text = !in_text;
            if (in_text) from = i + 1;
        } else if (!in_text) {
            depth += (c == '{' || c == '[') - (c == '}' || c == ']');
            /* The last text that ended is the name. */
            if (c == ':' && depth == 1 && n_bytes - from > n_name && memcmp(body + from, name, n_name) == 0 &&
                body[from + n_name] == '"')
                return true;
        }
    }
    return false;
}

bool api_request_is_chat(const char *body, size_t n_bytes) {
    return has_name(body, n_bytes, "messages") && !has_name(body, n_bytes, "prompt");
}

const struct api_ask *api_request_ask_of(const char *path) {
    static const struct {
        const char *path;
        const struct api_ask *ask;
    } routes[] = {{"/v1/chat/completions", &chat_request},
                  {"/v1/completions", &completion_request},
                  {"/v1/embeddings", &embedding_request},
                  {"/v1/messages", &messages_request},
                  {"/v1/responses", &responses_request}};
    for (size_t i = 0; i < sizeof routes / sizeof routes[0]; i++)
        if (strcmp(routes[i].path, path) == 0) return routes[i].ask;
    return NULL;
}
