/* chat_prompt: from a chat request to the token ids that the model sees.
 *
 * Thread: any. */
#ifndef KVICK_CHAT_CHAT_PROMPT_H
#define KVICK_CHAT_CHAT_PROMPT_H

#include "chat/chat_template.h"
#include "tokenizer/tokenizer.h"

/* Appends the ids of a chat request's JSON (see chat_template_render): special tokens are found in the template's own
 * text only, so that no message can forge a turn. BOS is put in front if the model wants one and the template gave
 * none. out_rendered_ns: NULL, or when the text was there, by clock_now_ns.
 * Errors: as chat_template_render and tokenizer_encode_spans. */
WARN_UNUSED enum status chat_prompt_encode(const struct chat_template *chat_template, const struct tokenizer *tokenizer,
                                           const char *request, size_t n_bytes, int64_t now_s, struct id_list *out_ids,
                                           int64_t *out_rendered_ns, struct status_note *note);

#endif
