#include "chat/answer.h"

void answer_init(struct answer *answer) {
    *answer = (struct answer){0};
    str_init(&answer->text, ANSWER_MAX_BYTES);
    str_init(&answer->reasoning, ANSWER_MAX_BYTES);
    for (int i = 0; i < ANSWER_MAX_CALLS; i++) {
        str_init(&answer->calls[i].name, ANSWER_MAX_BYTES);
        str_init(&answer->calls[i].arguments, ANSWER_MAX_BYTES);
    }
}

void answer_deinit(struct answer *answer) {
    str_deinit(&answer->text);
    str_deinit(&answer->reasoning);
    for (int i = 0; i < ANSWER_MAX_CALLS; i++) {
        str_deinit(&answer->calls[i].name);
        str_deinit(&answer->calls[i].arguments);
    }
}

void answer_clear(struct answer *answer) {
    str_clear(&answer->text);
    str_clear(&answer->reasoning);
    for (int i = 0; i < answer->n_calls; i++) {
        str_clear(&answer->calls[i].arguments);
        answer->calls[i].is_told = true;
    }
}

bool answer_has_news(const struct answer *answer) {
    const struct answer_call *last = &answer->calls[answer->n_calls - 1];
    bool has_call = answer->n_calls > 0 && (!last->is_told || last->arguments.n_bytes > 0);
    return answer->text.n_bytes > 0 || answer->reasoning.n_bytes > 0 || has_call;
}
