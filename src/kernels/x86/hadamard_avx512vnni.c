#include "kernels/kernel_table.h"
#include "kernels/x86/lanes_avx512vnni.h"

#define ALWAYS_INLINE static inline __attribute__((always_inline))

/* One stage inside a vector: a and b of each pair are half lanes apart. */
ALWAYS_INLINE __m512 stage(__m512 x, __m512 swapped, __mmask16 is_b) {
    __m512 sum = _mm512_add_ps(x, swapped);
    return _mm512_mask_sub_ps(sum, is_b, swapped, x);
}

/* n vectors in pieces of `piece`; constants where it matters, so that all vectors stay in registers. */
ALWAYS_INLINE void rotate(const float *x, float *out, float factor, int n, int piece) {
    __m512 y[ATTENTION_MAX_HEAD_DIM / 16];
#pragma GCC unroll 16
    for (int i = 0; i < n; i++) y[i] = _mm512_loadu_ps(x + 16 * i);
#pragma GCC unroll 16
    for (int i = 0; i < n; i++) y[i] = stage(y[i], _mm512_permute_ps(y[i], 0xb1), 0xaaaa);
#pragma GCC unroll 16
    for (int i = 0; i < n; i++) y[i] = stage(y[i], _mm512_permute_ps(y[i], 0x4e), 0xcccc);
#pragma GCC unroll 16
    for (int i = 0; i < n; i++) y[i] = stage(y[i], _mm512_shuffle_f32x4(y[i], y[i], 0xb1), 0xf0f0);
#pragma GCC unroll 16
    for (int i = 0; i < n; i++) y[i] = stage(y[i], _mm512_shuffle_f32x4(y[i], y[i], 0x4e), 0xff00);
#pragma GCC unroll 4
    for (int half = 1; half < piece; half *= 2)
#pragma GCC unroll 16
        for (int i = 0; i < n - half; i++) {
            if (i & half) continue;
            __m512 a = y[i], b = y[i + half];
            y[i] = _mm512_add_ps(a, b), y[i + half] = _mm512_sub_ps(a, b);
        }
#pragma GCC unroll 16
    for (int i = 0; i < n; i++) _mm512_storeu_ps(out + 16 * i, _mm512_mul_ps(y[i], _mm512_set1_ps(factor)));
}

void hadamard_avx512vnni(const float *x, float *out, float factor, int head_dim) {
    switch (head_dim) {
    case 64: rotate(x, out, factor, 4, 4); break;
    case 128: rotate(x, out, factor, 8, 8); break;
    case 256: rotate(x, out, factor, 16, 16); break;
    default: rotate(x, out, factor, head_dim / 16, hadamard_piece(head_dim) / 16);
    }
}
