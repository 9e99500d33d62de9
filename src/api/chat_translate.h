/* chat_translate: pieces of a chat in OpenAI's form, made of what requests of other forms say.
 *
 * False or NULL: fault is set. Thread: io. */
#ifndef KVICK_API_CHAT_TRANSLATE_H
#define KVICK_API_CHAT_TRANSLATE_H

#include "api/json_read.h"

/* The part that says the same as a block with a "text"; the caller's reference. */
json_t *chat_translate_text(const json_t *block);

/* A string as it is, or a list of texts as parts, which templates join; the caller's reference. where: the content, for
 * the fault. types: what the texts may be, up to a NULL. */
json_t *chat_translate_content(const json_t *content, const char *where, const char *const *types,
                               struct api_fault *fault);

/* "tools". function_of makes the function of one, the caller's reference. */
WARN_UNUSED bool chat_translate_tools(json_t *chat, const json_t *json,
                                      json_t *(*function_of)(const json_t *tool, size_t idx, struct api_fault *fault),
                                      struct api_fault *fault);

/* The tool with choice's "name" must be called. */
void chat_translate_tool_choice(json_t *chat, const json_t *choice);

/* "chat_template_kwargs", with the switch that templates have for reasoning, if the request does not set it itself.
 * is_thinking: a flag; NULL: as the template has it. */
WARN_UNUSED bool chat_translate_kwargs(json_t *chat, const json_t *json, json_t *is_thinking, struct api_fault *fault);

#endif
