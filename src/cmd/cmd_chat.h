/* cmd_chat: a conversation as text and as token ids, for the commands that talk to a model.
 *
 * Thread: main. */
#ifndef KVICK_CMD_CMD_CHAT_H
#define KVICK_CMD_CMD_CHAT_H

#include <jansson.h>

#include "chat/answer_parse.h"
#include "chat/chat_template.h"
#include "engine/phase_stats.h"
#include "tokenizer/tokenizer.h"
#include "weights/gguf.h"

/* The model's own template with the texts of its special tokens.
 * Errors: STATUS_INVALID if the model has none, else as chat_template_create. */
WARN_UNUSED enum status cmd_chat_template(const struct gguf *gguf, struct chat_template **out,
                                          struct status_note *note);

/* How the model says what is no text, by its template; the plainest way if it has none. */
struct answer_rules cmd_chat_rules(const struct gguf *gguf);

/* Reads "2026-11-29" or "2026-11-29T12:00:00"; NULL: the local wall clock. False for anything else. */
bool cmd_chat_now(const char *text, int64_t *out_now_s);

/* Appends the ids of a chat request {"messages": ...}: special tokens are found in the template's own text only, so
 * that no message can forge a turn. BOS is put in front if the model wants one and the template gave none.
 * stats: gets the time that each part took. */
WARN_UNUSED enum status cmd_chat_encode(const struct chat_template *chat_template, const struct tokenizer *tokenizer,
                                        const json_t *request, struct id_list *out_ids, struct phase_stats *stats,
                                        struct status_note *note);

#endif
