#include "kernels/kernel_table.h"

/* One code serves few rows and many: attention_avx512vnni.h. */
void attention_rows_f16_avx512vnni(const struct attention_rows *rows, const struct attention_keys *keys, int key_begin,
                                   int key_end, struct attention_state *state) {
    attention_keys_f16_avx512vnni(rows, keys, key_begin, key_end, state);
}
