#include "chat/chat_prompt.h"

#include "base/clock.h"
#include "base/mem.h"

/* The template's own text: what lies between the request's. */
static enum status encode_rendered(const struct tokenizer *tokenizer, const struct str *text,
                                   const struct chat_template_spans *user, struct id_list *out_ids,
                                   struct status_note *note) {
    struct tokenizer_span *own = mem_alloc_array(user->n_items + 1, sizeof *own);
    if (!own) return status_fail(note, STATUS_NOMEM, "no memory for the prompt");
    size_t from = 0, n_own = 0;
    for (size_t i = 0; i <= user->n_items; i++) {
        size_t to = i < user->n_items ? user->items[i].from : text->n_bytes;
        if (to > from) own[n_own++] = (struct tokenizer_span){from, to, true};
        if (i < user->n_items) from = user->items[i].to;
    }
    size_t n_before = out_ids->n_ids;
    enum status status = tokenizer_encode_spans(tokenizer, text->ptr, text->n_bytes, own, n_own, 0, out_ids, note);
    bool lacks_bos = tokenizer_adds_bos(tokenizer) &&
                     (out_ids->n_ids == n_before || out_ids->ids[n_before] != tokenizer_bos(tokenizer));
    if (!status && lacks_bos) {
        out_ids->n_ids = n_before;
        status =
            tokenizer_encode_spans(tokenizer, text->ptr, text->n_bytes, own, n_own, TOKENIZER_ADD_BOS, out_ids, note);
    }
    mem_free(own);
    return status;
}

enum status chat_prompt_encode(const struct chat_template *chat_template, const struct tokenizer *tokenizer,
                               const char *request, size_t n_bytes, int64_t now_s, struct id_list *out_ids,
                               int64_t *out_rendered_ns, struct status_note *note) {
    struct chat_template_spans user = {0};
    struct str text;
    str_init(&text, CHAT_TEMPLATE_MAX_OUT_BYTES);
    enum status status = chat_template_render(chat_template, request, n_bytes, now_s, &text, &user, note);
    if (out_rendered_ns) *out_rendered_ns = clock_now_ns();
    if (!status) status = encode_rendered(tokenizer, &text, &user, out_ids, note);
    chat_template_spans_deinit(&user);
    str_deinit(&text);
    return status;
}
