/* field_list: "name=number,name=number" into the fields of a struct; also one field a line, with comments behind '#'.
 *
 * Thread: any.   Memory: caller's. */
#ifndef KVICK_BASE_FIELD_LIST_H
#define KVICK_BASE_FIELD_LIST_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

struct field_row {
    const char *name;
    size_t off; /* of a double in the struct */
    double min, max;
    bool is_whole;
};

/* Fields that the text does not name keep their values.
 * Errors: STATUS_INVALID with the field and its value; for an unknown one, with all that are known. */
WARN_UNUSED enum status field_list_read(const char *text, const struct field_row *rows, int n_rows, void *out,
                                        struct status_note *note);

#endif
