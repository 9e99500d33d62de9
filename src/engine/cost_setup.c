#include "engine/cost_setup.h"

#include <string.h>

#include "base/log.h"
#include "planner/cost_file.h"

static bool has_identity(const struct engine_options *options) {
    for (size_t i = 0; i < sizeof options->weights_identity; i++)
        if (options->weights_identity[i]) return true;
    return false;
}

void cost_setup_init(struct cost_model *model, const struct engine_options *options, const struct model_config *config,
                     const struct kernel_table *kernels, size_t weight_bytes) {
    static const char *const forms[] = {[ACTIVATIONS_AUTO] = "auto",
                                        [ACTIVATIONS_INT8] = "int8",
                                        [ACTIVATIONS_INT16] = "int16",
                                        [ACTIVATIONS_F32] = "f32"};
    struct cost_model_setup setup = {.tier = kernels->peak_dots_tier,
                                     .n_threads = options->n_threads,
                                     .kv_type = dtype_name(options->kv_dtype),
                                     .activations = forms[options->activations]};
    char dir[COST_FILE_MAX_PATH_BYTES];
    memcpy(setup.weights, options->weights_identity, sizeof setup.weights);
    cost_model_init(model, &setup, config, kernels, weight_bytes);
    if (has_identity(options) && cost_file_dir(dir)) cost_file_load(model, dir);
}

void cost_setup_keep(const struct cost_model *model, const struct engine_options *options) {
    char dir[COST_FILE_MAX_PATH_BYTES];
    struct status_note note;
    if (!has_identity(options) || model->is_disturbed || !cost_file_dir(dir)) return;
    if (cost_file_save(model, dir, &note)) log_line(LOG_WARN, "the cost model is not kept: %s", note.text);
}
