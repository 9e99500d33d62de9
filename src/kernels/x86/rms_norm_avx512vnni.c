#include <math.h>

#include "kernels/kernel_table.h"
#include "kernels/x86/lanes_avx512vnni.h"

void rms_norm_avx512vnni(const float *x, const float *weight, float eps, float *out, int n_rows, int n) {
    for (int row = 0; row < n_rows; row++, x += n, out += n) {
        __m512 lane = _mm512_setzero_ps();
        for (int i = 0; i < n; i += 16) {
            __m512 v = _mm512_maskz_loadu_ps(lanes_avx512vnni_first(n - i), x + i);
            lane = _mm512_fmadd_ps(v, v, lane);
        }
        __m512 scale = _mm512_set1_ps(1.0f / sqrtf(lanes_avx512vnni_tree(lane) / (float)n + eps));
        for (int i = 0; i < n; i += 16) {
            __mmask16 mask = lanes_avx512vnni_first(n - i);
            __m512 v = _mm512_mul_ps(_mm512_maskz_loadu_ps(mask, x + i), scale);
            _mm512_mask_storeu_ps(out + i, mask, _mm512_mul_ps(v, _mm512_maskz_loadu_ps(mask, weight + i)));
        }
    }
}
