/* gemm_q8_avx512vnni: the one body behind every gemm_<quantized type>_avx512vnni. How the work is cut depends on the
 * number of rows; the sums of a row do not. */
#ifndef KVICK_KERNELS_X86_GEMM_Q8_AVX512VNNI_H
#define KVICK_KERNELS_X86_GEMM_Q8_AVX512VNNI_H

#include "kernels/x86/gemm_panel_avx512vnni.h"
#include "kernels/x86/gemm_stream_avx512vnni.h"

/* With more rows the panel wins for 6 and 8 bits; for 4 bits both come close to the limit. */
#define GEMM_STREAM_MAX_ROWS 20

GEMM_INLINE void gemm_q8_avx512vnni(enum dtype dtype, const void *w_packed, const struct act_q8 *x, float *out,
                                    int out_stride, int n_rows, int n_cols, int k) {
    const size_t tile_bytes = pack_tile_bytes(dtype, k);
    if (n_rows <= GEMM_STREAM_MAX_ROWS)
        gemm_stream(dtype, w_packed, tile_bytes, x, out, out_stride, n_rows, n_cols, k);
    else
        gemm_panel(dtype, w_packed, tile_bytes, x, out, out_stride, n_rows, n_cols, k);
}

#endif
