/* top_select: the largest of many values, without sorting the rest.
 *
 * Larger first, of equals the lower id. NaN is never selected.   Thread: any.   Memory: caller's. */
#ifndef KVICK_ENGINE_TOP_SELECT_H
#define KVICK_ENGINE_TOP_SELECT_H

#include <stdbool.h>
#include <stdint.h>

/* Index of the largest of n values, 0 if all are NaN. */
uint32_t top_select_max(const float *values, int n);

/* The k largest of n values, largest first; fewer if there are not k numbers. out_ids: [k]. Returns how many.
 * Cost: O(n + k log k) where the large values come in no particular order. */
int top_select(const float *values, int n, int k, uint32_t *out_ids);

/* Whether one of 16 values is at a bound or above. */
bool top_select_any_at_least(const float values[16], float bound);

/* ids[0, n) in order: the largest value first. */
void top_select_sort(const float *values, uint32_t *ids, int n);

#endif
