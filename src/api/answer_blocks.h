/* answer_blocks: a streamed answer as a row of blocks, one for each part: each is begun, continued and ended.
 *
 * What a form of the wire writes for each is its own (struct answer_blocks_form, of the call's api_response); the order
 * is here. Thread: io. */
#ifndef KVICK_API_ANSWER_BLOCKS_H
#define KVICK_API_ANSWER_BLOCKS_H

#include "api/api_call.h"

/* All append events about choice->answer.parts[idx] to out. Errors end the call. */
struct answer_blocks_form {
    enum status (*begin)(const struct api_call *call, struct api_choice *choice, int idx, struct str *out);
    /* It has text that was not told. */
    enum status (*go_on)(const struct api_call *call, struct api_choice *choice, int idx, struct str *out);
    enum status (*end)(const struct api_call *call, struct api_choice *choice, int idx, struct str *out);
};

/* write_piece and write_end of an api_response: what is new of a choice's answer; at its end what is open ends, too. */
WARN_UNUSED enum status answer_blocks_write(const struct api_call *call, struct api_prompt *prompt, int choice,
                                            int token_idx, struct str *out);
WARN_UNUSED enum status answer_blocks_finish(const struct api_call *call, struct api_prompt *prompt, int choice,
                                             struct str *out);

#endif
