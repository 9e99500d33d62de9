#include "kernels/dtype.h"
#include "kernels/kernel_table.h"

void kv_store_f32_scalar(const float *k, const float *v, void *k_block, void *v_block, int slot_idx, int block_tokens,
                         int head_dim) {
    float *k_out = (float *)k_block + slot_idx, *v_out = (float *)v_block + (size_t)slot_idx * (size_t)head_dim;
    for (int d = 0; d < head_dim; d++) {
        k_out[(size_t)d * (size_t)block_tokens] = k[d];
        v_out[d] = v[d];
    }
}
