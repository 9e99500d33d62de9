#include "kernels/x86/attention_rows_i8_avx2.h"

void attention_rows_q8_0_avx2(const struct attention_rows *rows, const struct attention_keys *keys, int key_begin,
                              int key_end, struct attention_state *state) {
    attention_rows_i8_avx2_fold(true, rows, keys, key_begin, key_end, state);
}
