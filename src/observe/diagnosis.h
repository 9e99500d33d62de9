/* diagnosis: says in sentences what is wrong with a server and why, from what is measured.
 *
 * Told of every request that came home and, once a second, of the engine's counts, it compares the last minute with a
 * time in which nothing was wrong (diagnosis_window) by the rules of diagnosis_rules, whenever a bucket is over.
 * Thread: io.   Memory: about half a megabyte, at create. Time is an argument. */
#ifndef KVICK_OBSERVE_DIAGNOSIS_H
#define KVICK_OBSERVE_DIAGNOSIS_H

#include "base/json_write.h"
#include "observe/diagnosis_rules.h"

#define DIAGNOSIS_MAX_RULES 24

struct diagnosis;

/* A rule began to hold, or no longer does. sentence: what it says now; of an end, what it said last. Borrowed. */
struct diagnosis_change {
    const char *rule, *sentence, *advice;
    bool is_begin;
    int64_t at_ns, since_ns; /* now; when it began */
};
typedef void diagnosis_change_fn(void *owner, const struct diagnosis_change *change);

/* Buckets of 5 s, a minute of them against five; nothing is promised. */
struct diagnosis_window_options diagnosis_options(void);

/* Errors: STATUS_NOMEM. */
WARN_UNUSED enum status diagnosis_create(struct diagnosis **out_diagnosis,
                                         const struct diagnosis_window_options *options);
void diagnosis_destroy(struct diagnosis **diagnosis);

/* Who is told of changes; NULL: nobody. */
void diagnosis_listen(struct diagnosis *diagnosis, diagnosis_change_fn *on_change, void *owner);

void diagnosis_note(struct diagnosis *diagnosis, const struct diagnosis_record *record, int64_t now_ns);
void diagnosis_sample(struct diagnosis *diagnosis, const struct engine_stats *stats, int64_t now_ns);

/* What the rule of that name says now, borrowed; NULL: it is silent. */
const char *diagnosis_sentence(const struct diagnosis *diagnosis, const char *rule);

/* The field "diagnosis" of the open object: [{"rule", "sentence", "advice", "since_ms"}], empty when nothing is wrong.
 * since_ms: for how long it has been so. */
void diagnosis_write(const struct diagnosis *diagnosis, int64_t now_ns, struct json_write *json);

/* The fields of the open object that a sample is made of; cmd/diagnose_log reads them again. */
void diagnosis_write_sample(const struct engine_stats *stats, struct json_write *json);

#endif
