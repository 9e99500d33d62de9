/* kv_record: that a type of KV cache was evaluated on a model (kvick eval kv), kept beside the files of step costs.
 *
 * A record is of one model file (gguf_digest), one type and one KV_EVAL_VERSION; what the CPU is does not matter: all
 * tiers give the same bits.   Thread: any. */
#ifndef KVICK_CMD_KV_RECORD_H
#define KVICK_CMD_KV_RECORD_H

#include <jansson.h>

#include "base/cache_dir.h"
#include "bench/kv_eval.h"
#include "kernels/dtype.h"

struct gguf;

enum kv_record_state { KV_RECORD_NONE, KV_RECORD_FAILED, KV_RECORD_PASSED };

/* A file that is damaged, of another version, model or type counts as none. */
enum kv_record_state kv_record_find(const struct gguf *gguf, enum dtype dtype);

/* details: what the evaluation found, borrowed. out_path says where.
 * Errors: STATUS_IO, and STATUS_INVALID where there is no folder for it: neither XDG_CACHE_HOME nor HOME. */
WARN_UNUSED enum status kv_record_save(const struct gguf *gguf, enum dtype dtype, bool is_passed, json_t *details,
                                       char out_path[CACHE_DIR_MAX_BYTES], struct status_note *note);

/* A warning where q8_0 is used without a record that says it passed: one line that names the command. */
void kv_record_warn(const struct gguf *gguf, enum dtype dtype, const char *model);

#endif
