/* kv_type: the types that a KV cache may have, by the names that options have for them.
 *
 * Thread: any. */
#ifndef KVICK_CMD_KV_TYPE_H
#define KVICK_CMD_KV_TYPE_H

#include "kernels/dtype.h"
#include "weights/model_sizes.h"

/* "int8"; NULL for a type that no KV cache has. */
const char *kv_type_name(enum dtype dtype);

/* option: "--kv-cache-dtype". Errors: STATUS_INVALID with the option, the value, and for types of other servers what to
 * use instead. */
WARN_UNUSED enum status kv_type_parse(const char *option, const char *name, enum dtype *out, struct status_note *note);

/* Whether heads of this size can be kept so. Errors: STATUS_INVALID with key, option and values. */
WARN_UNUSED enum status kv_type_check_head(const char *option, enum dtype dtype, int head_dim,
                                           struct status_note *note);

/* The same for all layers of a model. */
WARN_UNUSED enum status kv_type_check_sizes(const char *option, enum dtype dtype, const struct model_sizes *sizes,
                                            struct status_note *note);

#endif
