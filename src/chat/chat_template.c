#include "chat/chat_template.h"

#include "base/mem.h"

#ifdef KVICK_BRIDGE

#include "kvick_bridge.h"

struct chat_template {
    struct kvick_bridge_template *bridge;
};

static enum status status_of(int code) {
    switch (code) {
    case KVICK_BRIDGE_OK: return STATUS_OK;
    case KVICK_BRIDGE_SYNTAX: return STATUS_FORMAT;
    case KVICK_BRIDGE_LIMIT: return STATUS_LIMIT;
    case KVICK_BRIDGE_INTERNAL: return STATUS_NOMEM;
    default: return STATUS_INVALID;
    }
}

static enum status fail(struct status_note *note, int code, const char *words) {
    const char *who = code == KVICK_BRIDGE_REQUEST ? "" : "chat template: ";
    return status_fail(note, status_of(code), "%s%s", who, words);
}

enum status chat_template_create(struct chat_template **out_template, const char *source, size_t n_bytes,
                                 const struct chat_template_tokens *tokens, struct status_note *note) {
    struct chat_template *chat_template = mem_alloc(sizeof *chat_template);
    if (!chat_template) return status_fail(note, STATUS_NOMEM, "chat template: out of memory");
    const char *ptrs[KVICK_BRIDGE_N_SPECIALS] = {tokens->bos.ptr, tokens->eos.ptr, tokens->unk.ptr, tokens->pad.ptr};
    size_t lengths[KVICK_BRIDGE_N_SPECIALS] = {tokens->bos.n_bytes, tokens->eos.n_bytes, tokens->unk.n_bytes,
                                               tokens->pad.n_bytes};
    char words[STATUS_NOTE_MAX_BYTES] = "";
    int code =
        kvick_bridge_template_create(&chat_template->bridge, source, n_bytes, ptrs, lengths, words, sizeof words);
    if (code != KVICK_BRIDGE_OK) {
        mem_free(chat_template);
        return fail(note, code, words);
    }
    *out_template = chat_template;
    return STATUS_OK;
}

void chat_template_destroy(struct chat_template **chat_template) {
    if (!*chat_template) return;
    kvick_bridge_template_destroy((*chat_template)->bridge);
    mem_free(*chat_template);
    *chat_template = NULL;
}

static enum status copy_spans(const struct kvick_bridge_text *text, struct chat_template_spans *out_user) {
    if (text->n_user == 0) return STATUS_OK;
    out_user->items = mem_alloc_array(text->n_user, sizeof *out_user->items);
    if (!out_user->items) return STATUS_NOMEM;
    out_user->n_items = text->n_user;
    for (size_t i = 0; i < text->n_user; i++)
        out_user->items[i] = (struct chat_template_span){text->user[i].from, text->user[i].to};
    return STATUS_OK;
}

enum status chat_template_render(const struct chat_template *chat_template, const char *request, size_t n_bytes,
                                 int64_t now_s, struct str *out, struct chat_template_spans *out_user,
                                 struct status_note *note) {
    if (out_user) *out_user = (struct chat_template_spans){0};
    struct kvick_bridge_text text;
    char words[STATUS_NOTE_MAX_BYTES] = "";
    int code = kvick_bridge_template_render(chat_template->bridge, request, n_bytes, now_s, &text, words, sizeof words);
    if (code != KVICK_BRIDGE_OK) return fail(note, code, words);
    enum status status = out_user ? copy_spans(&text, out_user) : STATUS_OK;
    if (!status) status = str_append(out, text.ptr, text.n_bytes);
    kvick_bridge_text_free(&text);
    if (!status) return STATUS_OK;
    if (out_user) chat_template_spans_deinit(out_user);
    return status_fail(note, status, "chat template: no room for the text: %s", status_text(status));
}

#else

enum status chat_template_create(struct chat_template **out_template, const char *source, size_t n_bytes,
                                 const struct chat_template_tokens *tokens, struct status_note *note) {
    (void)out_template, (void)source, (void)n_bytes, (void)tokens;
    return status_fail(note, STATUS_INVALID, "chat template: this kvick was built without them (KVICK_BRIDGE=OFF)");
}

void chat_template_destroy(struct chat_template **chat_template) {
    *chat_template = NULL;
}

enum status chat_template_render(const struct chat_template *chat_template, const char *request, size_t n_bytes,
                                 int64_t now_s, struct str *out, struct chat_template_spans *out_user,
                                 struct status_note *note) {
    (void)chat_template, (void)request, (void)n_bytes, (void)now_s, (void)out, (void)out_user;
    return status_fail(note, STATUS_INVALID, "chat template: this kvick was built without them (KVICK_BRIDGE=OFF)");
}

#endif

void chat_template_spans_deinit(struct chat_template_spans *spans) {
    mem_free(spans->items);
    *spans = (struct chat_template_spans){0};
}
