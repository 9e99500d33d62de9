/* answer_parse: a model's words -> text, reasoning and tool calls, in the forms of the families that load.
 *
 *   Hermes (ChatML, Qwen, SmolLM)  <tool_call>{"name": ..., "arguments": {...}}</tool_call>
 *   Llama 3                        the answer begins with [<|python_tag|>] {"name": ..., "parameters": {...}} [; {...}]
 *   Mistral                        [TOOL_CALLS] [{"name": ..., "arguments": {...}}, ...], [TOOL_CALLS]name[ARGS]{...}
 *   Gemma                          as Llama 3, also inside a fence of three backticks
 *   reasoning                      <think> ... </think>, at the answer's beginning
 * Every byte is taken by itself, so the same words give the same answer however they are cut into pieces. What only
 * began like a call is text. A call is given out when its name is known; its arguments follow as they are written.
 * Space between calls and behind the last one is nothing.
 * Thread: one owner.   Source: the models' own templates. */
#ifndef KVICK_CHAT_ANSWER_PARSE_H
#define KVICK_CHAT_ANSWER_PARSE_H

#include "chat/answer.h"
#include "chat/call_scan.h"

enum answer_form { ANSWER_HERMES, ANSWER_LLAMA, ANSWER_MISTRAL, ANSWER_GEMMA };

struct answer_rules {
    enum answer_form form;
    bool has_reasoning;
};

/* By what the template's source speaks of. */
struct answer_rules answer_parse_rules(const char *template_source, size_t n_bytes);

enum answer_state {
    ANSWER_START, /* nothing but space so far */
    ANSWER_TEXT,
    ANSWER_REASONING,
    ANSWER_BEFORE_CALL, /* behind an opening mark */
    ANSWER_NAME,        /* Mistral's name without quotes */
    ANSWER_CALL,        /* within an object */
    ANSWER_AFTER_CALL
};

struct answer_parse {
    struct answer_rules rules;
    bool has_tools;
    /* Names that a call without marks must have; NULL: no such calls. Borrowed. */
    bool (*is_tool)(const void *owner, const char *name, size_t n_bytes);
    const void *owner;
    enum answer_state state;
    struct call_scan scan;
    struct str held; /* bytes that may become a mark or a call; given out as text if they do not */
    bool is_bare;    /* the call has no marks around it */
    bool is_list;    /* within Mistral's brackets */
    bool skips_space;
};

/* has_tools: the request has some and lets the model choose. */
void answer_parse_init(struct answer_parse *parse, struct answer_rules rules, bool has_tools,
                       bool (*is_tool)(const void *owner, const char *name, size_t n_bytes), const void *owner);
void answer_parse_deinit(struct answer_parse *parse);

/* Before the first byte: the prompt ended within the reasoning. */
void answer_parse_begin_thinking(struct answer_parse *parse);

/* Takes a piece. Errors: those of str_append. */
WARN_UNUSED enum status answer_parse_push(struct answer_parse *parse, const char *bytes, size_t n_bytes,
                                          struct answer *answer);

/* The words are over: gives out what was held. */
WARN_UNUSED enum status answer_parse_finish(struct answer_parse *parse, struct answer *answer);

#endif
