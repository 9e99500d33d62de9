/* api_delivery: the bytes of a call's answer on their way to who waits for it: events or a body for an exchange, a body
 * for who took the call's place there. When nobody waits any more nothing is written.
 *
 * Where there is no memory the call gets that fault and is cancelled. Thread: io. */
#ifndef KVICK_API_API_DELIVERY_H
#define KVICK_API_API_DELIVERY_H

#include "api/api_call.h"

/* The prompt was admitted: the head of a stream, with what was promised. */
void api_delivery_start(struct api_call *call);

/* How far the prompt is, in a stream. */
void api_delivery_progress(struct api_prompt *prompt, const struct event *event);

/* What has become certain of a choice since the last piece, in a stream. token_idx: of the token that made it so; -1:
 * none did. */
void api_delivery_piece(struct api_prompt *prompt, int choice, int token_idx);

/* The choice is over for reason, "stop" or "length"; told at once in a stream. */
void api_delivery_end_choice(struct api_prompt *prompt, int choice, const char *reason);

/* All prompts are home: the fault, the end of the stream, or the whole answer. */
void api_delivery_finish(struct api_call *call);

/* The answer is a stored one, a stream's events or a whole body. */
void api_delivery_stored(struct api_call *call, const char *bytes, size_t n_bytes);

/* There is no memory for the answer: the fault is told at once. */
void api_delivery_fail(struct api_call *call);

/* The client did not read for so long that nothing more can be told. */
void api_delivery_abort(struct api_call *call);

#endif
