/* inbox: the way in: takes what clients sent, checks it, and makes sequences of it.   Thread: engine. */
#ifndef KVICK_ENGINE_INBOX_H
#define KVICK_ENGINE_INBOX_H

#include "engine/engine_state.h"

/* Handles all commands that wait, as far as the outbox has room for the answers. Within a step (is_in_step) cancelled
 * sequences are marked only: they leave after it. */
void inbox_read(struct engine *engine);

/* Requests that were never admitted, as far as the outbox has room: who does not read keeps them anyway. */
void inbox_send_home(struct engine *engine);

#endif
