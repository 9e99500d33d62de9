/* outbox: the way out: events to the client, the ends of answers, and what to do about clients that do not read.
 *
 * Thread: engine. */
#ifndef KVICK_ENGINE_OUTBOX_H
#define KVICK_ENGINE_OUTBOX_H

#include "engine/engine_state.h"

/* Of one sequence: progress, a token, the end of its choice, the end of its request. */
#define OUTBOX_EVENTS_PER_STEP 4

/* Room for whatever a step can send; for an answer to a command (steps have half of the outbox for themselves); for
 * one event. */
bool outbox_has_step_room(const struct engine *engine);
bool outbox_has_answer_room(const struct engine *engine);
bool outbox_has_any_room(const struct engine *engine);

/* The client hears of it at the next flush. */
void outbox_send(struct engine *engine, const struct event *event);

/* Wakes the client once for all that was sent: after a step, and after messages were read. */
void outbox_flush(struct engine *engine);

/* The request's last event; its account is closed. */
void outbox_send_home(struct engine *engine, struct request *request, struct event event);

/* The sequence has a new token; commit has appended it. */
void outbox_send_token(struct engine *engine, const struct sequence *sequence);

/* How far its prompt is, if it wants to be told. */
void outbox_send_progress(struct engine *engine, const struct request *request);

/* The sequence's answer ends: blocks and slot are given back, and the request goes home with its last choice. */
void outbox_finish(struct engine *engine, struct sequence *sequence, enum finish_reason reason);

/* All sequences that have been marked as cancelled. Not within a step. */
void outbox_finish_cancelled(struct engine *engine);

/* Marks sequences whose clients do not read, so that the plan leaves them out, and ends those that did not read for too
 * long. Not within a step. */
void outbox_watch_readers(struct engine *engine, int64_t now_ns);

#endif
