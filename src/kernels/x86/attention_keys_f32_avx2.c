#include "kernels/kernel_table.h"
#include "kernels/x86/attention_avx2.h"

void attention_keys_f32_avx2(const struct attention_rows *rows, const struct attention_keys *keys, int key_begin,
                             int key_end, struct attention_state *state) {
    attention_avx2_fold(4, rows, keys, key_begin, key_end, state);
}
