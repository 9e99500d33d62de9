#include "kernels/kernel_table.h"
#include "kernels/x86/lanes_avx512vnni.h"

/* One stage inside a vector: a and b of each pair are half lanes apart. */
static inline __m512 stage(__m512 x, __m512 swapped, __mmask16 is_b) {
    __m512 sum = _mm512_add_ps(x, swapped);
    return _mm512_mask_sub_ps(sum, is_b, swapped, x);
}

static inline __m512 sixteen(__m512 x) {
    x = stage(x, _mm512_permute_ps(x, 0xb1), 0xaaaa);
    x = stage(x, _mm512_permute_ps(x, 0x4e), 0xcccc);
    x = stage(x, _mm512_shuffle_f32x4(x, x, 0xb1), 0xf0f0);
    return stage(x, _mm512_shuffle_f32x4(x, x, 0x4e), 0xff00);
}

void hadamard_avx512vnni(const float *x, float *out, float factor, int head_dim) {
    const int n = head_dim / 16, piece = hadamard_piece(head_dim) / 16;
    __m512 y[ATTENTION_MAX_HEAD_DIM / 16];
    for (int i = 0; i < n; i++) y[i] = sixteen(_mm512_loadu_ps(x + 16 * i));
    for (int half = 1; half < piece; half *= 2)
        for (int i = 0; i < n; i++) {
            if (i & half) continue;
            __m512 a = y[i], b = y[i + half];
            y[i] = _mm512_add_ps(a, b), y[i + half] = _mm512_sub_ps(a, b);
        }
    for (int i = 0; i < n; i++) _mm512_storeu_ps(out + 16 * i, _mm512_mul_ps(y[i], _mm512_set1_ps(factor)));
}
