/* cmd_engine: from a command's options to an engine, the same way for run, eval and bench. */
#ifndef KVICK_CMD_CMD_ENGINE_H
#define KVICK_CMD_CMD_ENGINE_H

#include "base/cache_dir.h"
#include "base/options.h"
#include "cmd/cmd_model.h"
#include "engine/engine.h"
#include "planner/capacity.h"

struct cmd_engine {
    char path[CMD_MODEL_MAX_PATH_BYTES];
    struct gguf *gguf;
    int model_max_context; /* what the model was made for */
    struct engine_options options;
    char cost_dir[CACHE_DIR_MAX_BYTES]; /* see engine_options */
    struct capacity capacity;           /* how memory was given to pools */
    struct engine *engine;              /* NULL until begun */
};

struct cmd_engine_needs {
    int min_context; /* tokens that must fit, or 0 */
    int max_sequences;
    int n_full; /* contexts of full length that the KV cache holds, which bounds how long they are unless an option
                   says that; 0: max_sequences */
    int max_logit_rows; /* of a step; 0: one per sequence */
    bool has_bf16_tables;
    bool is_serving; /* many clients: step costs are measured once, and steps are bounded by them */
    bool is_hasty;   /* the first client does not wait for that: it goes on while idle */
};

/* Whether the options make sense whatever the model: if not, it is the usage that is wrong.
 * Errors: STATUS_INVALID with the option and its value in note. */
WARN_UNUSED enum status cmd_engine_check(const struct options *options, struct status_note *note);

/* The file, checked, and the engine's options; loads nothing yet. model: a path or a name; the options have been
 * checked. Errors: as cmd_model_path and gguf_open; STATUS_INVALID for sizes that do not fit the model. The note names
 * the file where the file is at fault. */
WARN_UNUSED enum status cmd_engine_open_file(struct cmd_engine *opened, const char *model,
                                             const struct options *options, const struct cmd_engine_needs *needs,
                                             struct status_note *note);

/* The same for a file that is open and stays the caller's: nothing of seen is to be closed. */
WARN_UNUSED enum status cmd_engine_look(struct cmd_engine *seen, struct gguf *gguf, const struct options *options,
                                        const struct cmd_engine_needs *needs, struct status_note *note);

/* Loads the model on the engine's threads; the caller goes on, and awaits it before the first request.
 * Errors: as engine_begin and engine_await; close afterwards. */
WARN_UNUSED enum status cmd_engine_begin(struct cmd_engine *opened, struct status_note *note);
WARN_UNUSED enum status cmd_engine_await(struct cmd_engine *opened, struct status_note *note);

/* All three. */
WARN_UNUSED enum status cmd_engine_open(struct cmd_engine *opened, const char *model, const struct options *options,
                                        const struct cmd_engine_needs *needs, struct status_note *note);
void cmd_engine_close(struct cmd_engine *opened);

#endif
