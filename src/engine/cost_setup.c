#include "engine/cost_setup.h"

#include <string.h>

#include "planner/cost_file.h"

void cost_setup_init(struct cost_model *model, const struct engine_options *options, const struct model_config *config,
                     const struct kernel_table *kernels, size_t weight_bytes) {
    static const char *const forms[] = {[ACTIVATIONS_AUTO] = "auto",
                                        [ACTIVATIONS_INT8] = "int8",
                                        [ACTIVATIONS_INT16] = "int16",
                                        [ACTIVATIONS_F32] = "f32"};
    struct cost_model_setup setup = {.tier = kernels->tier,
                                     .n_threads = options->n_threads,
                                     .kv_type = dtype_name(options->kv_dtype),
                                     .activations = forms[options->activations]};
    memcpy(setup.weights, options->weights_id, sizeof setup.weights);
    cost_model_init(model, &setup, config, kernels, weight_bytes);
    if (options->cost_dir) cost_file_load(model, options->cost_dir);
}
