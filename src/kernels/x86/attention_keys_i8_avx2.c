#include "kernels/x86/attention_keys_i8_avx2.h"

void attention_keys_i8_avx2(const struct attention_rows *rows, const struct attention_keys *keys, int key_begin,
                            int key_end, struct attention_state *state) {
    attention_keys_i8_avx2_fold(false, rows, keys, key_begin, key_end, state);
}
