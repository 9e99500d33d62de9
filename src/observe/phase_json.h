/* phase_json: the table of a request's phases as JSON, the same wherever it is told.
 *
 * Thread: whose the stats are. */
#ifndef KVICK_OBSERVE_PHASE_JSON_H
#define KVICK_OBSERVE_PHASE_JSON_H

#include "base/json_write.h"
#include "engine/phase_stats.h"

/* Fields of the open object: every part in ms, what is unaccounted, the total, and the first token's time. */
void phase_json_write(struct json_write *json, const struct phase_stats *stats);

/* Milliseconds from arrival to at_ns; null if at_ns is 0, as it did not happen. */
void phase_json_write_since(struct json_write *json, const char *key, const struct phase_stats *stats, int64_t at_ns);

#endif
