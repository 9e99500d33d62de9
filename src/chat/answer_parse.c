#include "chat/answer_parse.h"

#include <string.h>

#define MAX_HELD_BYTES ANSWER_MAX_BYTES
#define MAX_NAME_BYTES 256

static const char *const open_marks[] = {[ANSWER_HERMES] = "<tool_call>",
                                         [ANSWER_LLAMA] = "<|python_tag|>",
                                         [ANSWER_MISTRAL] = "[TOOL_CALLS]",
                                         [ANSWER_GEMMA] = "```"};

/* ---- life ---- */

static bool speaks_of(const char *source, size_t n_bytes, const char *word) {
    return memmem(source, n_bytes, word, strlen(word)) != NULL;
}

struct answer_rules answer_parse_rules(const char *source, size_t n_bytes) {
    struct answer_rules rules = {.form = ANSWER_HERMES, .has_reasoning = speaks_of(source, n_bytes, "</think>")};
    if (speaks_of(source, n_bytes, "[TOOL_CALLS]"))
        rules.form = ANSWER_MISTRAL;
    else if (speaks_of(source, n_bytes, "<|start_header_id|>"))
        rules.form = ANSWER_LLAMA;
    else if (speaks_of(source, n_bytes, "<start_of_turn>"))
        rules.form = ANSWER_GEMMA;
    return rules;
}

void answer_parse_init(struct answer_parse *parse, struct answer_rules rules, bool has_tools,
                       bool (*is_tool)(const void *owner, const char *name, size_t n_bytes), const void *owner) {
    *parse = (struct answer_parse){.rules = rules, .has_tools = has_tools, .is_tool = is_tool, .owner = owner};
    str_init(&parse->held, MAX_HELD_BYTES);
    call_scan_init(&parse->scan);
}

void answer_parse_deinit(struct answer_parse *parse) {
    str_deinit(&parse->held);
    call_scan_deinit(&parse->scan);
}

void answer_parse_begin_thinking(struct answer_parse *parse) {
    parse->state = ANSWER_REASONING;
    parse->skips_space = true;
}

/* ---- held bytes ---- */

static bool is_space(char byte) {
    return byte == ' ' || byte == '\t' || byte == '\n' || byte == '\r';
}

static bool is_blank(const struct str *text) {
    for (size_t i = 0; i < text->n_bytes; i++)
        if (!is_space(text->ptr[i])) return false;
    return true;
}

enum match { MATCH_NONE, MATCH_PART, MATCH_WHOLE };

/* The held bytes against a mark; space before it belongs to it. */
static enum match match_mark(const struct str *held, const char *mark) {
    size_t from = 0, n_mark = strlen(mark);
    while (from < held->n_bytes && is_space(held->ptr[from])) from++;
    size_t n = held->n_bytes - from;
    if (n > n_mark || memcmp(held->ptr + from, mark, n) != 0) return MATCH_NONE;
    return n == n_mark ? MATCH_WHOLE : MATCH_PART;
}

/* Gives out held bytes until what remains may begin the mark. */
static enum status give_out(struct answer_parse *parse, const char *mark, struct answer *answer,
                            enum answer_kind kind) {
    struct str *held = &parse->held;
    size_t n = 0;
    struct str rest = *held;
    while (rest.n_bytes && (!mark || match_mark(&rest, mark) == MATCH_NONE)) {
        rest.ptr++;
        rest.n_bytes--;
        n++;
    }
    enum status status = answer_say(answer, kind, held->ptr, n);
    if (status || n == 0) return status;
    memmove(held->ptr, held->ptr + n, held->n_bytes - n + 1);
    held->n_bytes -= n;
    return STATUS_OK;
}

static void enter(struct answer_parse *parse, enum answer_state state) {
    parse->state = state;
    str_clear(&parse->held);
}

/* ---- calls ---- */

/* What was held as a call is none. */
static enum status become_text(struct answer_parse *parse, struct answer *answer) {
    parse->state = ANSWER_TEXT;
    return give_out(parse, NULL, answer, ANSWER_IS_TEXT);
}

static bool may_begin(const struct answer_parse *parse, const struct answer *answer) {
    const struct str *name = &parse->scan.name;
    if (answer->n_calls == ANSWER_MAX_CALLS) return false;
    return !parse->is_bare || !parse->is_tool || parse->is_tool(parse->owner, name->ptr, name->n_bytes);
}

/* Hands on what the scan has found. The call begins with its name; from then on nothing is held. */
static enum status take_news(struct answer_parse *parse, struct answer *answer) {
    struct call_scan *scan = &parse->scan;
    bool has_begun = parse->held.n_bytes == 0;
    bool is_over = scan->place == CALL_END, is_broken = scan->place == CALL_BROKEN;
    if (!has_begun) {
        if (is_broken || (is_over && !scan->has_name)) return become_text(parse, answer);
        if (!scan->has_name) return STATUS_OK;
        if (!may_begin(parse, answer)) return become_text(parse, answer);
        struct answer_part *call = answer_begin(answer, ANSWER_IS_CALL);
        enum status status = str_append(&call->name, scan->name.ptr, scan->name.n_bytes);
        if (status) return status;
        str_clear(&parse->held);
    }
    struct str *arguments = &answer_last(answer)->text;
    enum status status = STATUS_OK;
    if (call_scan_has_news(scan)) {
        status = str_append(arguments, scan->arguments.ptr, scan->arguments.n_bytes);
        str_clear(&scan->arguments);
    }
    if (!status && is_over && !scan->has_arguments) status = str_append_text(arguments, "{}");
    if (is_over || is_broken) enter(parse, ANSWER_AFTER_CALL);
    return status;
}

static enum status push_call(struct answer_parse *parse, char byte, struct answer *answer) {
    enum status status = call_scan_push(&parse->scan, byte);
    return status ? status : take_news(parse, answer);
}

/* The byte is held, and begins an object. */
static enum status begin_call(struct answer_parse *parse, bool is_apart, struct answer *answer) {
    parse->state = ANSWER_CALL;
    call_scan_begin(&parse->scan, is_apart);
    return push_call(parse, '{', answer);
}

/* Behind an opening mark. The held bytes begin with it, so that they can become text. */
static enum status push_before_call(struct answer_parse *parse, char byte, struct answer *answer) {
    bool is_mistral = parse->rules.form == ANSWER_MISTRAL;
    if (is_space(byte)) return STATUS_OK;
    if (byte == '{') return begin_call(parse, false, answer);
    if (is_mistral && byte == '[' && !parse->is_list) {
        parse->is_list = true;
        return STATUS_OK;
    }
    bool is_letter = (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z') || byte == '_';
    /* A fence may say what it holds: ```json */
    if (parse->rules.form == ANSWER_GEMMA && is_letter) return STATUS_OK;
    if (!is_mistral || parse->is_list || !is_letter) return become_text(parse, answer);
    parse->state = ANSWER_NAME;
    str_clear(&parse->scan.name);
    return str_append(&parse->scan.name, &byte, 1);
}

/* Mistral's name[ARGS]{...}, also without [ARGS]. */
static enum status push_name(struct answer_parse *parse, char byte, struct answer *answer) {
    static const char mark[] = "[ARGS]";
    struct str *name = &parse->scan.name;
    size_t n_mark = sizeof mark - 1;
    if (byte != '{' && name->n_bytes == MAX_NAME_BYTES) return become_text(parse, answer);
    if (byte != '{') return str_append(name, &byte, 1);
    while (name->n_bytes && is_space(name->ptr[name->n_bytes - 1])) name->n_bytes--;
    if (name->n_bytes > n_mark && memcmp(name->ptr + name->n_bytes - n_mark, mark, n_mark) == 0)
        name->n_bytes -= n_mark;
    name->ptr[name->n_bytes] = 0;
    return begin_call(parse, true, answer);
}

/* Between calls, and behind the last one: marks and space fall away. */
static enum status push_after_call(struct answer_parse *parse, char byte, struct answer *answer) {
    enum answer_form form = parse->rules.form;
    const char *close = form == ANSWER_HERMES ? "</tool_call>" : form == ANSWER_GEMMA ? "```" : NULL;
    struct str *held = &parse->held;
    if (close && match_mark(held, close) != MATCH_NONE) {
        if (match_mark(held, close) == MATCH_WHOLE) {
            str_clear(held);
            if (form == ANSWER_HERMES) parse->state = ANSWER_TEXT;
        }
        return STATUS_OK;
    }
    if (is_blank(held) || (held->n_bytes == 1 && (byte == ',' || byte == ';'))) {
        str_clear(held);
        return STATUS_OK;
    }
    if (held->n_bytes == 1 && byte == ']' && parse->is_list) {
        parse->is_list = false;
        str_clear(held);
        return STATUS_OK;
    }
    if (held->n_bytes == 1 && byte == '{' && form != ANSWER_HERMES && (form != ANSWER_MISTRAL || parse->is_list))
        return begin_call(parse, false, answer);
    enum match match = match_mark(held, open_marks[form]);
    if (match == MATCH_WHOLE) parse->state = ANSWER_BEFORE_CALL;
    return match == MATCH_NONE ? become_text(parse, answer) : STATUS_OK;
}

/* ---- text ---- */

static enum status push_text(struct answer_parse *parse, struct answer *answer) {
    const char *mark = parse->has_tools && parse->rules.form != ANSWER_GEMMA ? open_marks[parse->rules.form] : NULL;
    enum status status = give_out(parse, mark, answer, ANSWER_IS_TEXT);
    if (!status && mark && match_mark(&parse->held, mark) == MATCH_WHOLE) {
        parse->state = ANSWER_BEFORE_CALL;
        parse->is_bare = false;
    }
    return status;
}

static enum status push_reasoning(struct answer_parse *parse, struct answer *answer) {
    static const char close[] = "</think>";
    enum status status = give_out(parse, close, answer, ANSWER_IS_REASONING);
    if (!status && match_mark(&parse->held, close) == MATCH_WHOLE) {
        enter(parse, ANSWER_START);
        parse->skips_space = true;
    }
    return status;
}

/* Nothing but space yet: reasoning, a call without marks, or text. */
static enum status push_start(struct answer_parse *parse, char byte, struct answer *answer) {
    enum answer_form form = parse->rules.form;
    bool has_bare = parse->has_tools && (form == ANSWER_LLAMA || form == ANSWER_GEMMA);
    const struct str *held = &parse->held;
    enum match think = parse->rules.has_reasoning ? match_mark(held, "<think>") : MATCH_NONE;
    enum match mark = parse->has_tools ? match_mark(held, open_marks[form]) : MATCH_NONE;
    if (think == MATCH_WHOLE) {
        enter(parse, ANSWER_REASONING);
        parse->skips_space = true;
        return STATUS_OK;
    }
    if (mark == MATCH_WHOLE) {
        parse->is_bare = has_bare;
        parse->state = ANSWER_BEFORE_CALL;
        return STATUS_OK;
    }
    if (think == MATCH_PART || mark == MATCH_PART) return STATUS_OK;
    if (has_bare && byte == '{' && held->n_bytes && strspn(held->ptr, " \t\r\n") == held->n_bytes - 1) {
        parse->is_bare = true;
        return begin_call(parse, false, answer);
    }
    parse->state = ANSWER_TEXT;
    return push_text(parse, answer);
}

static enum status push_byte(struct answer_parse *parse, char byte, struct answer *answer) {
    if (parse->skips_space && is_space(byte)) return STATUS_OK;
    parse->skips_space = false;
    bool is_kept = parse->state != ANSWER_CALL || parse->held.n_bytes > 0; /* a call that has begun is no text */
    enum status status = is_kept ? str_append(&parse->held, &byte, 1) : STATUS_OK;
    if (status) return status;
    switch (parse->state) {
    case ANSWER_START: return push_start(parse, byte, answer);
    case ANSWER_TEXT: return push_text(parse, answer);
    case ANSWER_REASONING: return push_reasoning(parse, answer);
    case ANSWER_BEFORE_CALL: return push_before_call(parse, byte, answer);
    case ANSWER_NAME: return push_name(parse, byte, answer);
    case ANSWER_CALL: return push_call(parse, byte, answer);
    case ANSWER_AFTER_CALL: return push_after_call(parse, byte, answer);
    }
    return STATUS_OK;
}

enum status answer_parse_push(struct answer_parse *parse, const char *bytes, size_t n_bytes, struct answer *answer) {
    if (!parse->has_tools && !parse->rules.has_reasoning) return answer_say(answer, ANSWER_IS_TEXT, bytes, n_bytes);
    for (size_t i = 0; i < n_bytes; i++) {
        enum status status = push_byte(parse, bytes[i], answer);
        if (status) return status;
    }
    return STATUS_OK;
}

enum status answer_parse_finish(struct answer_parse *parse, struct answer *answer) {
    const struct answer_part *last = answer_last(answer);
    bool is_behind_call = last && last->kind == ANSWER_IS_CALL;
    /* Behind a call: the rest of its closing mark, or space. */
    if (parse->state == ANSWER_AFTER_CALL || (is_behind_call && is_blank(&parse->held))) str_clear(&parse->held);
    return give_out(parse, NULL, answer, parse->state == ANSWER_REASONING ? ANSWER_IS_REASONING : ANSWER_IS_TEXT);
}
