#include "api/answer_blocks.h"

/* Ends the open block, if there is one. */
static enum status end_open(const struct answer_blocks_form *form, const struct api_call *call,
                            struct api_choice *choice, struct str *out) {
    return choice->n_blocks ? form->end(call, choice, choice->n_blocks - 1, out) : STATUS_OK;
}

enum status answer_blocks_write(const struct answer_blocks_form *form, const struct api_call *call,
                                struct api_choice *choice, struct str *out) {
    enum status status = STATUS_OK;
    for (int i = choice->n_blocks ? choice->n_blocks - 1 : 0; !status && i < choice->answer.n_parts; i++) {
        const struct answer_part *part = &choice->answer.parts[i];
        if (i == choice->n_blocks) {
            status = end_open(form, call, choice, out);
            choice->n_blocks++;
            if (!status) status = form->begin(call, choice, i, out);
        }
        if (!status && part->n_told_bytes < part->text.n_bytes) status = form->go_on(call, choice, i, out);
    }
    return status;
}

enum status answer_blocks_finish(const struct answer_blocks_form *form, const struct api_call *call,
                                 struct api_choice *choice, struct str *out) {
    enum status status = answer_blocks_write(form, call, choice, out);
    return status ? status : end_open(form, call, choice, out);
}
