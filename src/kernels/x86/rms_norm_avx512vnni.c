#include <math.h>

#include "kernels/kernel_table.h"
#include "kernels/x86/lanes_avx512vnni.h"

static inline __m512 square(const float *x, __mmask16 mask, __m512 lane) {
    __m512 v = _mm512_maskz_loadu_ps(mask, x);
    return _mm512_fmadd_ps(v, v, lane);
}

static inline void scale_by(__m512 scale, const float *x, const float *weight, float *out, __mmask16 mask) {
    __m512 v = _mm512_mul_ps(_mm512_maskz_loadu_ps(mask, x), scale);
    _mm512_mask_storeu_ps(out, mask, _mm512_mul_ps(v, _mm512_maskz_loadu_ps(mask, weight)));
}

void rms_norm_avx512vnni(const float *x, const float *weight, float eps, float *out, int n_rows, int n) {
    const int n_whole = n / 16 * 16;
    const __mmask16 rest = lanes_avx512vnni_first(n - n_whole);
    for (int row = 0; row < n_rows; row++, x += n, out += n) {
        __m512 lane = _mm512_setzero_ps();
        for (int i = 0; i < n_whole; i += 16) lane = square(x + i, 0xffff, lane);
        if (rest) lane = square(x + n_whole, rest, lane);
        __m512 scale = _mm512_set1_ps(1.0f / sqrtf(lanes_avx512vnni_tree(lane) / (float)n + eps));
        for (int i = 0; i < n_whole; i += 16) scale_by(scale, x + i, weight + i, out + i, 0xffff);
        if (rest) scale_by(scale, x + n_whole, weight + n_whole, out + n_whole, rest);
    }
}
