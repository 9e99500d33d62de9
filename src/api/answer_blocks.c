#include "api/answer_blocks.h"

#include "api/api_response.h"

/* Ends the open block, if there is one. */
static enum status end_open(const struct api_call *call, struct api_choice *choice, struct str *out) {
    return choice->n_blocks ? call->response->blocks->end(call, choice, choice->n_blocks - 1, out) : STATUS_OK;
}

enum status answer_blocks_write(const struct api_call *call, struct api_prompt *prompt, int choice_idx, int token_idx,
                                struct str *out) {
    const struct answer_blocks_form *form = call->response->blocks;
    struct api_choice *choice = &prompt->choices[choice_idx];
    enum status status = STATUS_OK;
    (void)token_idx;
    for (int i = choice->n_blocks ? choice->n_blocks - 1 : 0; !status && i < choice->answer.n_parts; i++) {
        const struct answer_part *part = &choice->answer.parts[i];
        if (i == choice->n_blocks) {
            status = end_open(call, choice, out);
            choice->n_blocks++;
            if (!status) status = form->begin(call, choice, i, out);
        }
        if (!status && part->n_told_bytes < part->text.n_bytes) status = form->go_on(call, choice, i, out);
    }
    return status;
}

enum status answer_blocks_finish(const struct api_call *call, struct api_prompt *prompt, int choice, struct str *out) {
    enum status status = answer_blocks_write(call, prompt, choice, -1, out);
    return status ? status : end_open(call, &prompt->choices[choice], out);
}
