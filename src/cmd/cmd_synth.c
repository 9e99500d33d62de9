/* synth: writes a model file of a known shape with random weights. */
#include <inttypes.h>
#include <stdio.h>

#include "cmd/cmd.h"
#include "weights/synth.h"

#define MAX_CONTEXT (1 << 24)

/* 0 keeps the shape's own number. */
static enum status override(const char *name, long value, long max, int *count, struct status_note *note) {
    if (value < 0 || value > max)
        return status_fail(note, STATUS_INVALID, "--%s: %ld is not within 0..%ld", name, value, max);
    if (value) *count = (int)value;
    return STATUS_OK;
}

static enum status read_spec(const struct options *options, struct synth_spec *spec, struct status_note *note) {
    *spec = (struct synth_spec){.seed = (uint64_t)options->seed};
    if (!options->shape) return status_fail(note, STATUS_INVALID, "--shape NAME is missing");
    if (!options->type) return status_fail(note, STATUS_INVALID, "--type TYPE is missing");
    enum status status = model_shape_find(options->shape, &spec->shape, note);
    if (status) {
        status_note_prefix(note, "--shape");
        return status;
    }
    status = file_type_find(options->type, &spec->type, note);
    if (status) {
        status_note_prefix(note, "--type");
        return status;
    }
    status = override("layers", options->layers, MODEL_SHAPE_MAX_LAYERS, &spec->shape.n_layers, note);
    return status ? status : override("context", options->context, MAX_CONTEXT, &spec->shape.max_context, note);
}

int cmd_synth(const struct options *options, int n_words, const char **words) {
    struct synth_spec spec;
    struct status_note note = {0};
    struct progress progress;
    if (n_words != 1) return cmd_usage("synth", n_words ? "one OUT file at a time" : "which OUT file?");
    enum status status = read_spec(options, &spec, &note);
    if (status) return cmd_usage("synth", "%s", note.text);
    progress_stop_on_signals();
    progress_start(&progress, spec.type.name, synth_bytes(&spec));
    status = synth_write(&spec, words[0], &progress, &note);
    progress_end(&progress);
    if (status) return cmd_fail(words[0], status, &note);
    printf("%s: %d layers in the shape of %s, type %s, %" PRIu64 " parameters, %" PRIu64 " MB\n", words[0],
           spec.shape.n_layers, spec.shape.name, spec.type.name, model_shape_n_parameters(&spec.shape),
           synth_bytes(&spec) / 1000000);
    return 0;
}
