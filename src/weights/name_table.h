/* name_table: from the name of a key or tensor to its index, for names that come from a file.
 *
 * Open addressing at half load; the hash is keyed with random bytes per table, so a file cannot be written to make its
 * names collide.   Thread: one owner, const once filled.   Memory: one array from init; names are borrowed.
 * Source: SipHash, Aumasson and Bernstein 2012 (1 and 3 rounds). */
#ifndef KVICK_WEIGHTS_NAME_TABLE_H
#define KVICK_WEIGHTS_NAME_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

struct name_slot {
    const char *name; /* NULL: free */
    uint32_t n_bytes;
    uint32_t idx;
};

struct name_table {
    struct name_slot *slots;
    size_t mask; /* number of slots - 1 */
    size_t n_names, max_names;
    uint64_t hash_key[2];
};

/* Errors: STATUS_NOMEM. A table that was only zeroed may be given to deinit and find. */
WARN_UNUSED enum status name_table_init(struct name_table *table, size_t max_names);
void name_table_deinit(struct name_table *table);

/* False, and nothing changed, if the name is there already. More than max_names names are a BUG. */
bool name_table_add(struct name_table *table, const char *name, uint32_t n_bytes, uint32_t idx);
bool name_table_find(const struct name_table *table, const char *name, size_t n_bytes, uint32_t *out_idx);

/* What is wrong with a name ("is empty", "is no valid UTF-8", "holds a control character"), or NULL. Names that pass
 * can be shown on a terminal as they are. */
const char *name_table_name_fault(const char *name, size_t n_bytes);

/* How many bytes of a name (at most 96, whole characters) an error line quotes, as the int of "%.*s". */
int name_table_quoted_bytes(const char *name, size_t n_bytes);

#endif
