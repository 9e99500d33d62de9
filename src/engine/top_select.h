/* top_select: the largest of many values, without sorting the rest.
 *
 * Larger first, of equals the lower id. NaN is never selected.   Thread: any.   Memory: caller's. */
#ifndef KVICK_ENGINE_TOP_SELECT_H
#define KVICK_ENGINE_TOP_SELECT_H

#include <stdint.h>

/* Index of the largest of n values, 0 if all are NaN. */
uint32_t top_select_max(const float *values, int n);

/* The k largest of n values, largest first; fewer if there are not k numbers. out_ids: [k]. Returns how many.
 * Cost: O(n + k log k) where the large values come in no particular order. */
int top_select(const float *values, int n, int k, uint32_t *out_ids);

/* ids[0, n) becomes a heap with the largest value on top. */
void top_select_heapify(const float *values, uint32_t *ids, int n);

/* Takes the top out of the heap ids[0, n), which then is ids[0, n - 1); the top goes to ids[n - 1]. n >= 1. */
uint32_t top_select_pop(const float *values, uint32_t *ids, int n);

#endif
