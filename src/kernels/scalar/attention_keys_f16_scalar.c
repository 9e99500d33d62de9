#include "kernels/kernel_table.h"
#include "kernels/scalar/attention_scalar.h"

void attention_keys_f16_scalar(const struct attention_rows *rows, const struct attention_keys *keys, int key_begin,
                               int key_end, struct attention_state *state) {
    attention_scalar_keys(attention_scalar_load_f16, rows, keys, key_begin, key_end, state);
}
