/* id_list: token ids that grow up to a bound given at init.
 *
 * Thread: one owner.   Invariant: n_ids <= max_ids. */
#ifndef KVICK_TOKENIZER_ID_LIST_H
#define KVICK_TOKENIZER_ID_LIST_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

struct id_list {
    int32_t *ids; /* [n_ids]; NULL while nothing is allocated */
    size_t n_ids;
    size_t max_ids;
    size_t cap_ids;
};

/* Cannot fail: memory is taken on first push. */
void id_list_init(struct id_list *list, size_t max_ids);
void id_list_deinit(struct id_list *list);

/* Both leave the list unchanged on failure. Errors: STATUS_LIMIT past max_ids, STATUS_NOMEM. */
WARN_UNUSED enum status id_list_push(struct id_list *list, int32_t id);
WARN_UNUSED enum status id_list_push_all(struct id_list *list, const int32_t *ids, size_t n_ids);

/* Forgets the content, keeps the memory. */
void id_list_clear(struct id_list *list);

/* The ids as heap memory of the caller (mem_free), n_ids of them as they were; the list is empty afterwards.
 * NULL: out of memory, nothing changed. */
WARN_UNUSED int32_t *id_list_take(struct id_list *list);

#endif
