/* hf_config: a model's sizes from the config.json that models are published with.
 *
 * Knows grouped heads, windows by layer_types or a pattern, multi-head latent attention, experts, linear attention,
 * convolution and state-space layers, shared keys and values; of composed models the text part.
 * Thread: any.   Source: the published configuration classes' field names. */
#ifndef KVICK_WEIGHTS_HF_CONFIG_H
#define KVICK_WEIGHTS_HF_CONFIG_H

#include "weights/model_sizes.h"

/* path: a .json file, or a folder that holds config.json. Weights are those of the folder's safetensors files, else
 * estimated from the sizes.
 * Errors: STATUS_IO, STATUS_FORMAT with the field and its value. */
WARN_UNUSED enum status hf_config_read(struct model_sizes *sizes, const char *path, struct status_note *note);

/* True for a path that hf_config_read is meant for. */
bool hf_config_is_path(const char *path);

#endif
