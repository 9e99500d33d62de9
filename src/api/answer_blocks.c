#include "api/answer_blocks.h"

enum status answer_blocks_close(const struct answer_blocks_form *form, const struct api_call *call,
                                struct api_choice *choice, struct str *out) {
    if (choice->block == ANSWER_BLOCK_NONE) return STATUS_OK;
    enum status status = form->end(call, choice, out);
    choice->block = ANSWER_BLOCK_NONE;
    return status;
}

/* A call always begins a block, text and reasoning go on in the one that is open. */
static enum status open_block(const struct answer_blocks_form *form, const struct api_call *call,
                              struct api_choice *choice, enum answer_block block, const struct answer_call *tool,
                              struct str *out) {
    if ((int)block == choice->block && !tool) return STATUS_OK;
    enum status status = answer_blocks_close(form, call, choice, out);
    if (status) return status;
    choice->block = (int)block;
    choice->n_blocks++;
    return form->begin(call, choice, tool, out);
}

static enum status write_text(const struct answer_blocks_form *form, const struct api_call *call,
                              struct api_choice *choice, enum answer_block block, const struct str *text, int token_idx,
                              struct str *out) {
    if (!text->n_bytes) return STATUS_OK;
    enum status status = open_block(form, call, choice, block, NULL, out);
    return status ? status : form->go_on(call, choice, text, token_idx, out);
}

static enum status write_call(const struct answer_blocks_form *form, const struct api_call *call,
                              struct api_choice *choice, const struct answer_call *tool, struct str *out) {
    enum status status = tool->is_told ? STATUS_OK : open_block(form, call, choice, ANSWER_BLOCK_CALL, tool, out);
    if (status || !tool->arguments.n_bytes) return status;
    return form->go_on(call, choice, &tool->arguments, -1, out);
}

/* A call that goes on keeps its block; of one piece, its rest comes before what follows it. */
enum status answer_blocks_write(const struct answer_blocks_form *form, const struct api_call *call,
                                struct api_choice *choice, int token_idx, struct str *out) {
    const struct answer *answer = &choice->answer;
    enum status status = STATUS_OK;
    int i = 0;
    for (; !status && i < answer->n_calls && answer->calls[i].is_told; i++)
        status = write_call(form, call, choice, &answer->calls[i], out);
    if (!status) status = write_text(form, call, choice, ANSWER_BLOCK_REASONING, &answer->reasoning, token_idx, out);
    if (!status) status = write_text(form, call, choice, ANSWER_BLOCK_TEXT, &answer->text, token_idx, out);
    for (; !status && i < answer->n_calls; i++) status = write_call(form, call, choice, &answer->calls[i], out);
    return status;
}
