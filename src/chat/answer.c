#include "chat/answer.h"

#include "base/status.h"

void answer_init(struct answer *answer) {
    *answer = (struct answer){0};
}

void answer_deinit(struct answer *answer) {
    for (int i = 0; i < answer->n_parts; i++) {
        str_deinit(&answer->parts[i].text);
        str_deinit(&answer->parts[i].name);
    }
    *answer = (struct answer){0};
}

struct answer_part *answer_last(struct answer *answer) {
    return answer->n_parts ? &answer->parts[answer->n_parts - 1] : NULL;
}

struct answer_part *answer_begin(struct answer *answer, enum answer_kind kind) {
    if (answer->n_parts == ANSWER_MAX_PARTS) BUG("an answer has more than %d parts", ANSWER_MAX_PARTS);
    struct answer_part *part = &answer->parts[answer->n_parts++];
    part->kind = kind;
    str_init(&part->text, ANSWER_MAX_BYTES);
    str_init(&part->name, ANSWER_MAX_BYTES);
    answer->n_calls += kind == ANSWER_IS_CALL;
    return part;
}

enum status answer_say(struct answer *answer, enum answer_kind kind, const char *bytes, size_t n_bytes) {
    struct answer_part *part = answer_last(answer);
    if (n_bytes == 0) return STATUS_OK;
    if (!part || part->kind != kind) part = answer_begin(answer, kind);
    return str_append(&part->text, bytes, n_bytes);
}

enum status answer_join(const struct answer *answer, enum answer_kind kind, bool is_new, struct str *out) {
    enum status status = STATUS_OK;
    for (int i = 0; !status && i < answer->n_parts; i++) {
        const struct answer_part *part = &answer->parts[i];
        size_t from = is_new ? part->n_told_bytes : 0;
        if (part->kind == kind) status = str_append(out, part->text.ptr + from, part->text.n_bytes - from);
    }
    return status;
}

bool answer_has_news(const struct answer *answer) {
    for (int i = 0; i < answer->n_parts; i++) {
        const struct answer_part *part = &answer->parts[i];
        if (!part->is_told || part->n_told_bytes < part->text.n_bytes) return true;
    }
    return false;
}

void answer_mark_told(struct answer *answer) {
    for (int i = 0; i < answer->n_parts; i++) {
        struct answer_part *part = &answer->parts[i];
        part->is_told = true;
        part->n_told_bytes = part->text.n_bytes;
        part->n_told_tokens = part->n_tokens;
    }
}
