/* pattern_check: regular expressions that repeat nothing, as "^+a" or "(*)", and are none in ECMA-262.
 *
 * The grammar's compiler takes them for something else than their writer meant; all other faults are its own to find.
 * Thread: any.   Source: ECMA-262, 22.2.1: a quantifier follows an atom; assertions and quantifiers are none. */
#ifndef KVICK_API_PATTERN_CHECK_H
#define KVICK_API_PATTERN_CHECK_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

/* Where a quantifier has nothing to repeat; n_bytes if nowhere. */
size_t pattern_check_find(const char *pattern, size_t n_bytes);

struct pattern_fault {
    char path[160]; /* of the keyword in the schema, as "/properties/a/pattern"; cut */
    const char *pattern;
    size_t off;
};

/* Every "pattern" and every name of "patternProperties" in a schema. False: out_fault tells of the first at fault. */
bool pattern_check_schema(const json_t *schema, struct pattern_fault *out_fault);

#endif
