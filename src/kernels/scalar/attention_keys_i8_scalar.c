#include "kernels/kernel_table.h"
#include "kernels/scalar/attention_i8_scalar.h"

void attention_keys_i8_scalar(const struct attention_rows *rows, const struct attention_keys *keys, int key_begin,
                              int key_end, struct attention_state *state) {
    attention_i8_scalar(false, rows, keys, key_begin, key_end, state);
}
