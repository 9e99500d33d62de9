/* call_scan: the JSON object of a tool call, byte by byte: its name, and its arguments as the text they are written in.
 *
 * {"name": "f", "arguments": {...}}, with "parameters" in place of "arguments", in any order and among other fields.
 * Arguments that are a string are the text in it. Thread: one owner. */
#ifndef KVICK_CHAT_CALL_SCAN_H
#define KVICK_CHAT_CALL_SCAN_H

#include <stdbool.h>

#include "base/str.h"

enum call_field { CALL_OTHER, CALL_NAME, CALL_ARGUMENTS };
enum call_place {
    CALL_BEFORE_OBJECT,
    CALL_BEFORE_KEY,
    CALL_KEY,
    CALL_BEFORE_COLON,
    CALL_BEFORE_VALUE,
    CALL_VALUE,
    CALL_AFTER_VALUE,
    CALL_END,
    CALL_BROKEN /* no such object */
};

struct call_scan {
    enum call_place place;
    enum call_field field;
    bool is_apart; /* the object is the arguments; the name came before */
    int depth;     /* brackets within the value */
    bool in_text, is_escaped;
    bool is_value_text; /* the value is a string */
    bool has_name, has_arguments;
    struct str key, name;
    struct str arguments; /* those not taken yet; taken by str_clear */
};

void call_scan_init(struct call_scan *scan);
void call_scan_deinit(struct call_scan *scan);

/* Ready for the next object. is_apart: it is the arguments themselves, and name holds what came before. */
void call_scan_begin(struct call_scan *scan, bool is_apart);

/* The next byte. Afterwards place tells whether the object is over or none. Errors: those of str_append. */
WARN_UNUSED enum status call_scan_push(struct call_scan *scan, char byte);

/* Arguments may be taken: those within a string only when it is over. */
bool call_scan_has_news(const struct call_scan *scan);

#endif
