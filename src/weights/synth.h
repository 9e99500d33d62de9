/* synth: a GGUF file of a known shape with random weights: for measuring, where only sizes and types matter.
 *
 * Weights have mean 0 and deviation near 1 / sqrt(row length), norms are 1, so that hidden states keep their size and
 * logits are finite. Equal specs give equal bytes.   Thread: one per call.   Memory: a megabyte and the vocabulary. */
#ifndef KVICK_WEIGHTS_SYNTH_H
#define KVICK_WEIGHTS_SYNTH_H

#include "base/progress.h"
#include "weights/file_type.h"
#include "weights/model_shape.h"

struct synth_spec {
    struct model_shape shape;
    struct file_type type;
    uint64_t seed;
};

/* Bytes of all tensors. */
uint64_t synth_bytes(const struct synth_spec *spec);

/* Writes path whole or not at all; adds the tensors' bytes to progress, which has been started.
 * Errors: those of gguf_write and of progress_add. */
WARN_UNUSED enum status synth_write(const struct synth_spec *spec, const char *path, struct progress *progress,
                                    struct status_note *note);

#endif
