/* synth_vocab: a made-up vocabulary of any size, valid for every program that reads GGUF: all bytes, then pieces of
 * lowercase letters built from one another, and the tokens of a chat template.
 *
 * Thread: any.   Memory: about 60 bytes per token until the call returns. */
#ifndef KVICK_WEIGHTS_SYNTH_VOCAB_H
#define KVICK_WEIGHTS_SYNTH_VOCAB_H

#include "weights/gguf_write.h"
#include "weights/model_shape.h"

#define SYNTH_VOCAB_MIN 512
#define SYNTH_VOCAB_MAX 400000

/* Writes the keys tokenizer.*: shape->n_vocab tokens, SYNTH_VOCAB_MIN..SYNTH_VOCAB_MAX, of the kind that
 * shape->tokenizer names. Errors: those of gguf_write, STATUS_NOMEM. */
WARN_UNUSED enum status synth_vocab_write(struct gguf_write *writer, const struct model_shape *shape,
                                          struct status_note *note);

#endif
