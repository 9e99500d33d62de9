/* terms: what was agreed with a request when it was admitted. Plain values, set once, but slack_ns (prefill).
 *
 * All times are absolute, ns of the clock whose now is passed to plan_make. */
#ifndef KVICK_SCHED_TERMS_H
#define KVICK_SCHED_TERMS_H

#include <stdint.h>

#define TERMS_MAX_TENANTS 64

enum terms_class { TERMS_INTERACTIVE, TERMS_BATCH, TERMS_N_CLASSES };

struct terms {
    enum terms_class service_class;
    int tenant;   /* slot of policy_tenant, < TERMS_MAX_TENANTS */
    int priority; /* within class and tenant, the lower the earlier */
    int n_cached; /* tokens of the prompt whose KV was there when it came: what is expected to be found */
    int64_t arrival_ns;
    int64_t promise_ns; /* the first token's predicted time; 0: none was made */
    int64_t slack_ns;   /* so much later the promise is still kept: told_slack_ns, more where steps got slower */
    int64_t told_slack_ns;
    double told_slowness; /* step_cost's, when promise_ns was told */
    int64_t hold_ns;      /* until then the others of its class go first, as it would make them late; 0: no such time */
    int64_t deadline_ns;  /* after it the first token is worth nothing; 0: none */
};

#endif
