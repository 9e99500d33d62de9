#include "tokenizer/id_list.h"

#include <string.h>

#include "base/mem.h"

void id_list_init(struct id_list *list, size_t max_ids) {
    *list = (struct id_list){.max_ids = max_ids};
}

void id_list_deinit(struct id_list *list) {
    mem_free(list->ids);
    id_list_init(list, list->max_ids);
}

static enum status reserve(struct id_list *list, size_t n_more) {
    if (n_more > list->max_ids - list->n_ids) return STATUS_LIMIT;
    size_t need = list->n_ids + n_more;
    if (need <= list->cap_ids) return STATUS_OK;
    size_t cap = list->cap_ids * 2 > need ? list->cap_ids * 2 : need < 64 ? 64 : need;
    int32_t *ids = mem_resize_array(list->ids, cap, sizeof *ids);
    if (!ids) return STATUS_NOMEM;
    list->ids = ids;
    list->cap_ids = cap;
    return STATUS_OK;
}

enum status id_list_push(struct id_list *list, int32_t id) {
    return id_list_push_all(list, &id, 1);
}

enum status id_list_push_all(struct id_list *list, const int32_t *ids, size_t n_ids) {
    enum status status = reserve(list, n_ids);
    if (status || n_ids == 0) return status;
    memcpy(list->ids + list->n_ids, ids, n_ids * sizeof *ids);
    list->n_ids += n_ids;
    return STATUS_OK;
}

void id_list_clear(struct id_list *list) {
    list->n_ids = 0;
}

int32_t *id_list_take(struct id_list *list) {
    int32_t *ids = list->ids ? list->ids : mem_alloc_array(1, sizeof *ids);
    if (ids) id_list_init(list, list->max_ids);
    return ids;
}
