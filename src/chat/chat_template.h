/* chat_template: a model's own Jinja template, which turns a chat request into the text that the model was trained on.
 *
 * The template comes with the model file and is not trusted: steps, bytes, output and depth are bounded, so that none
 * runs for more than about a second or takes more than 256 MiB (docs/decisions/chat-templates.md).
 * Thread: any, const after create; a render runs on a thread of its own.   Memory: heap, until destroy.
 * Source: the jinja2 environment of transformers' apply_chat_template, held to golden/chat. */
#ifndef KVICK_CHAT_CHAT_TEMPLATE_H
#define KVICK_CHAT_CHAT_TEMPLATE_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "base/str.h"

#define CHAT_TEMPLATE_MAX_OUT_BYTES ((size_t)16 << 20)

struct chat_template;

/* Bytes of the caller; ptr NULL: the model has no such token and the template's variable is undefined. */
struct chat_template_token {
    const char *ptr;
    size_t n_bytes;
};

struct chat_template_tokens {
    struct chat_template_token bos, eos, unk, pad;
};

/* Bytes [from, to) of a rendered text. */
struct chat_template_span {
    size_t from, to;
};

/* Where a rendered text holds bytes of the request (contents, roles, names, arguments, tool definitions, keyword
 * arguments): ascending, apart. All other bytes are the template's or the model's. Exact through every operation of
 * a template (trim, split, slices, replace, tojson, ...).
 * A tokenizer keeps a user from forging turns if it takes a special token only where none of its bytes lies in a span;
 * it must not otherwise cut the text at a span's ends, since ordinary tokens may cross them. */
struct chat_template_spans {
    struct chat_template_span *items; /* [n_items], mem */
    size_t n_items;
};

/* source: [n_bytes] the template's text; tokens: copied.
 * Errors: STATUS_FORMAT with the line, STATUS_LIMIT (length, nesting), STATUS_NOMEM. */
WARN_UNUSED enum status chat_template_create(struct chat_template **out_template, const char *source, size_t n_bytes,
                                             const struct chat_template_tokens *tokens, struct status_note *note);
void chat_template_destroy(struct chat_template **chat_template);

/* request: [n_bytes] a chat request's JSON. Read are messages, tools, documents, add_generation_prompt (default true)
 * and chat_template_kwargs; a chat_template in it is refused, other fields are ignored. Lists of text parts are joined
 * without a separator; arguments that are the text of a JSON object are given to the template as that object.
 * now_s: the wall clock that strftime_now sees, as seconds since 1970 without regard to zones.
 * out: appended to. out_user: NULL, or spans counted from the first byte appended; empty on failure.
 * Errors: STATUS_INVALID with the template's own words if it refuses, with the field if the request is at fault, with
 * the line if the template cannot handle it; STATUS_LIMIT past a budget; STATUS_NOMEM. out is then unchanged. */
WARN_UNUSED enum status chat_template_render(const struct chat_template *chat_template, const char *request,
                                             size_t n_bytes, int64_t now_s, struct str *out,
                                             struct chat_template_spans *out_user, struct status_note *note);
void chat_template_spans_deinit(struct chat_template_spans *spans);

#endif
