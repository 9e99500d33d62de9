#include "kernels/kernel_table.h"

/* One code serves few rows and many: attention_keys_i8_avx2.c. */
void attention_rows_i8_avx2(const struct attention_rows *rows, const struct attention_keys *keys, int key_begin,
                            int key_end, struct attention_state *state) {
    attention_keys_i8_avx2(rows, keys, key_begin, key_end, state);
}
