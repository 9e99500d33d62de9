/* api_choice: what the model says in one answer of a call, from tokens' text to text, reasoning and tool calls.
 *
 * Thread: io. */
#ifndef KVICK_API_API_CHOICE_H
#define KVICK_API_API_CHOICE_H

#include "api/api_call.h"

/* All choices of a prompt. False: no memory. */
WARN_UNUSED bool api_choice_init_all(struct api_call *call, struct api_prompt *prompt);
void api_choice_deinit_all(struct api_prompt *prompt, int n);

/* The prompt is known and nothing was said yet. Some templates open the reasoning themselves: then the prompt's last
 * tokens spell its mark. */
void api_choice_begin(struct api_prompt *prompt);

/* Words of the model -> what is certain of its answer. Errors: those of str_append. */
WARN_UNUSED enum status api_choice_read(struct api_call *call, struct api_choice *choice, const struct str *words,
                                        bool is_end);

#endif
