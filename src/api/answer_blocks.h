/* answer_blocks: a streamed answer as a row of blocks: reasoning, text, tool calls, each begun, continued and ended.
 *
 * What a form of the wire writes for each is its own (struct answer_blocks_form); the order is here.
 * Thread: io. */
#ifndef KVICK_API_ANSWER_BLOCKS_H
#define KVICK_API_ANSWER_BLOCKS_H

#include "api/api_call.h"

enum answer_block { ANSWER_BLOCK_NONE, ANSWER_BLOCK_REASONING, ANSWER_BLOCK_TEXT, ANSWER_BLOCK_CALL };

/* All append events to out. The open block is choice->block, the last of choice->n_blocks. Errors end the call. */
struct answer_blocks_form {
    /* tool: of ANSWER_BLOCK_CALL, else NULL. */
    enum status (*begin)(const struct api_call *call, struct api_choice *choice, const struct answer_call *tool,
                         struct str *out);
    /* token_idx: of the piece; -1: none. */
    enum status (*go_on)(const struct api_call *call, struct api_choice *choice, const struct str *text, int token_idx,
                         struct str *out);
    enum status (*end)(const struct api_call *call, struct api_choice *choice, struct str *out);
};

/* What is new of the choice's answer. */
WARN_UNUSED enum status answer_blocks_write(const struct answer_blocks_form *form, const struct api_call *call,
                                            struct api_choice *choice, int token_idx, struct str *out);

/* Ends the open block, if there is one. */
WARN_UNUSED enum status answer_blocks_close(const struct answer_blocks_form *form, const struct api_call *call,
                                            struct api_choice *choice, struct str *out);

#endif
