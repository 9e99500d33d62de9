#include "kernels/kernel_table.h"
#include "kernels/x86/attention_avx512vnni.h"

void attention_keys_f16_avx512vnni(const struct attention_rows *rows, const struct attention_keys *keys, int key_begin,
                                   int key_end, struct attention_state *state) {
    attention_avx512vnni_fold(2, rows, keys, key_begin, key_end, state);
}
