/* cmd_model: which file a command's MODEL argument means.   Thread: main.   Memory: caller's. */
#ifndef KVICK_CMD_CMD_MODEL_H
#define KVICK_CMD_CMD_MODEL_H

#include "base/status.h"

#define CMD_MODEL_MAX_PATH_BYTES 4096

/* An existing path wins; otherwise a name such as smollm2 means
 * ${XDG_CACHE_HOME:-$HOME/.cache}/kvick/models/<name>.gguf, where scripts/fetch-model puts it.
 * Errors: STATUS_IO if there is neither (the note says how to fetch it), STATUS_INVALID for an empty or too long one.
 */
WARN_UNUSED enum status cmd_model_path(const char *name_or_path, char out_path[CMD_MODEL_MAX_PATH_BYTES],
                                       struct status_note *note);

/* The file's name without folders and ".gguf": what clients may call the model. */
void cmd_model_name(const char path[CMD_MODEL_MAX_PATH_BYTES], char out_name[CMD_MODEL_MAX_PATH_BYTES]);

#endif
