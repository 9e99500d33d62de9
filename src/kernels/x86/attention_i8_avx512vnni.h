/* attention_i8_avx512vnni: exactness rule 10 for 1 to 16 rows, in two forms with equal bits.
 *
 * rows: lanes are query rows from the first dot to the output, so that softmax needs no sum across lanes; a dot's other
 * operand is four neighbours of one key, or of one dim of V, broadcast. keys: lanes are keys for the scores and dims
 * for the output, and as many rows as there are share each loaded K and V: for decode, where most row lanes would be
 * empty.
 */
#ifndef KVICK_KERNELS_X86_ATTENTION_I8_AVX512VNNI_H
#define KVICK_KERNELS_X86_ATTENTION_I8_AVX512VNNI_H

#include <immintrin.h>
#include <string.h>

#include "kernels/scalar/attention_i8_scalar.h"
#include "kernels/x86/attention_i8_tile.h"
#include "kernels/x86/exp2_avx512vnni.h"
#include "kernels/x86/lanes_avx512vnni.h"

#define MAX_ROWS ATTENTION_MAX_ROWS
#define MAX_DIM ATTENTION_MAX_HEAD_DIM
#define TILE_KEYS ATTENTION_TILE_KEYS
#define LANES ATTENTION_I8_GROUP
#define TILE_GROUPS ATTENTION_I8_TILE_GROUPS
#define ALWAYS_INLINE static inline __attribute__((always_inline))

/* Rows as the call quantizes them. Lanes from n_rows on: q and all scales are 0. */
struct attention_i8_avx512vnni_rows {
    _Alignas(64) int8_t q[MAX_ROWS][MAX_DIM];
    _Alignas(64) float d[MAX_ROWS], log2_d[MAX_ROWS];
    _Alignas(64) int32_t start[MAX_ROWS]; /* -KV_I8_K_OFFSET * sum of q: where a dot starts */
    _Alignas(64) int32_t first[MAX_ROWS], last[MAX_ROWS];
};

/* Sixteen values of one head as int8. */
ALWAYS_INLINE __m128i attention_i8_avx512vnni_round(__m512 x, __m512 inverse) {
    return _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(_mm512_mul_ps(x, inverse)));
}

/* quantize_i8_scalar. n is a multiple of 16. */
ALWAYS_INLINE float attention_i8_avx512vnni_quantize(const float *x, int8_t *out, int n) {
    __m512 largest = _mm512_setzero_ps();
    for (int i = 0; i < n; i += LANES) largest = _mm512_max_ps(largest, _mm512_abs_ps(_mm512_loadu_ps(x + i)));
    float amax = _mm512_reduce_max_ps(largest), inverse = 127.0f / amax;
    __m512 factor = _mm512_set1_ps(inverse <= FLT_MAX ? inverse : 0.0f);
    for (int i = 0; i < n; i += LANES)
        _mm_storeu_si128((__m128i *)(out + i), attention_i8_avx512vnni_round(_mm512_loadu_ps(x + i), factor));
    return amax / 127.0f;
}

static inline void attention_i8_avx512vnni_take_rows(const struct attention_rows *rows, int head_dim,
                                                     struct attention_i8_avx512vnni_rows *out) {
    for (int r = 0; r < MAX_ROWS; r++) {
        out->d[r] = 0, out->log2_d[r] = 0, out->start[r] = 0, out->first[r] = INT32_MAX, out->last[r] = -1;
        if (r >= rows->n_rows) continue;
        out->d[r] = attention_i8_avx512vnni_quantize(rows->q[r], out->q[r], head_dim);
        out->log2_d[r] = out->d[r] * EXP2_LOG2E;
        __m512i sum = _mm512_setzero_si512();
        for (int d = 0; d < head_dim; d += LANES)
            sum = _mm512_add_epi32(sum, _mm512_cvtepi8_epi32(_mm_load_si128((const __m128i *)(out->q[r] + d))));
        out->start[r] = -KV_I8_K_OFFSET * _mm512_reduce_add_epi32(sum);
        out->first[r] = rows->first_key[r], out->last[r] = rows->last_key[r];
    }
}

/* The keys of the tile that this row sees, one bit each. */
static inline uint64_t attention_i8_avx512vnni_seen(const struct attention_i8_avx512vnni_rows *rows,
                                                    const struct attention_i8_tile *tile, int row) {
    int first = rows->first[row] - tile->key, last = rows->last[row] - tile->key;
    if (first < tile->begin) first = tile->begin;
    if (last > tile->end - 1) last = tile->end - 1;
    return first > last ? 0 : ~UINT64_C(0) >> (63 - last) & ~UINT64_C(0) << first;
}

/* Blocks of a sequence lie anywhere, so the CPU cannot guess the next tile. */
ALWAYS_INLINE void attention_i8_avx512vnni_prefetch(const void *src, uintptr_t ahead) {
    _mm_prefetch((const char *)((uintptr_t)src + ahead), _MM_HINT_T1);
}

/* Lanes from n_rows on hold 0 / 0 steps: *out_inverse and *out_step of the largest weights w. */
ALWAYS_INLINE void attention_i8_avx512vnni_steps(__m512 w, __m512 *out_inverse, __m512 *out_step) {
    __mmask16 is_kept = _mm512_cmp_ps_mask(w, _mm512_set1_ps(ATTENTION_I8_W_MIN), _CMP_GE_OQ);
    *out_inverse = _mm512_maskz_div_ps(is_kept, _mm512_set1_ps(ATTENTION_I8_P_MAX), w);
    *out_step = _mm512_maskz_mul_ps(is_kept, w, _mm512_set1_ps(ATTENTION_I8_P_STEP));
}

ALWAYS_INLINE __m512i attention_i8_avx512vnni_quad(const void *src) {
    int32_t quad;
    memcpy(&quad, src, sizeof quad);
    return _mm512_set1_epi32(quad);
}

/* *acc += the dots of quads, unsigned by signed. The barrier keeps gcc from moving every sum to another register and
 * back around each dot. */
ALWAYS_INLINE void attention_i8_avx512vnni_dot(__m512i *acc, __m512i unsigned_quads, __m512i signed_quads) {
    *acc = _mm512_dpbusd_epi32(*acc, unsigned_quads, signed_quads);
    __asm__("" : "+v"(*acc));
}

#endif
