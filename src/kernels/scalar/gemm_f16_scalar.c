#include "kernels/dtype.h"
#include "kernels/kernel_table.h"

void gemm_f16_scalar(const void *w_packed, const float *x, int x_stride, float *out, int out_stride, int n_rows,
                     int n_cols, int k) {
    for (int col = 0; col < n_cols; col += GEMM_TILE_COLS) {
        const uint16_t *tile = (const uint16_t *)w_packed + (size_t)col * (size_t)k;
        int width = n_cols - col < GEMM_TILE_COLS ? n_cols - col : GEMM_TILE_COLS;
        for (int i = 0; i < n_rows; i++) {
            float acc[GEMM_TILE_COLS] = {0};
            for (int j = 0; j < k; j++) {
                const uint16_t *src = tile + (size_t)j * GEMM_TILE_COLS;
                float value = x[(size_t)i * (size_t)x_stride + (size_t)j];
                for (int c = 0; c < GEMM_TILE_COLS; c++)
                    acc[c] = __builtin_fmaf(value, dtype_f16_to_f32(src[c]), acc[c]);
            }
            for (int c = 0; c < width; c++) out[(size_t)i * (size_t)out_stride + (size_t)(col + c)] = acc[c];
        }
    }
}
