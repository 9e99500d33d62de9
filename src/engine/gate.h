/* gate: what a request is told before any work: taken, with the time of its first token, or refused, with the reason
 * and when to come again. Asks sched/admission on the engine's behalf.
 *
 * Asked within a step it answers for the step's end.   Thread: engine. */
#ifndef KVICK_ENGINE_GATE_H
#define KVICK_ENGINE_GATE_H

#include "engine/engine_state.h"

struct gate_answer {
    struct admission_candidate candidate;
    struct admission_answer admission;
    enum status status; /* of a refusal; its note is in the request */
    int64_t now_ns;
    int64_t at_ns; /* when the plan looks next: the answer's times count from there */
    enum prefix_miss miss;
};

/* The request has been checked for sense. Changes nothing that anybody sees. */
struct gate_answer gate_ask(struct engine *engine, struct request *request);

/* From now to the first token; 0: not worked out. */
int64_t gate_estimate_ns(const struct gate_answer *answer);

/* The answer was ADMITTED: the terms of its sequence. */
struct terms gate_accept(struct engine *engine, const struct gate_answer *answer);

/* The answer was not ADMITTED, and the request wanted more than an answer. */
void gate_refuse(struct engine *engine, const struct gate_answer *answer);

#endif
