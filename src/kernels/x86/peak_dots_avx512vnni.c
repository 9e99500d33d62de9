#include <immintrin.h>

#include "kernels/kernel_table.h"

#define CHAINS 12
#define DOTS_PER_CHAIN 4 /* of an iteration: 64 products each */

uint32_t peak_dots_avx512vnni(int64_t n, uint8_t w, int8_t x) {
    __m512i sums[CHAINS], ws = _mm512_set1_epi8((char)w), xs = _mm512_set1_epi8(x);
#pragma GCC unroll 12
    for (int c = 0; c < CHAINS; c++) sums[c] = _mm512_setzero_si512();
    for (int64_t i = 0; i < n; i++)
#pragma GCC unroll 4
        for (int d = 0; d < DOTS_PER_CHAIN; d++)
#pragma GCC unroll 12
            for (int c = 0; c < CHAINS; c++) {
                sums[c] = _mm512_dpbusd_epi32(sums[c], ws, xs);
                __asm__("" : "+v"(sums[c])); /* equal chains would become one */
            }
#pragma GCC unroll 12
    for (int c = 1; c < CHAINS; c++) sums[0] = _mm512_add_epi32(sums[0], sums[c]);
    /* The library's reduction ends in a signed sum, which may not wrap. */
    __m256i low = _mm256_add_epi32(_mm512_castsi512_si256(sums[0]), _mm512_extracti64x4_epi64(sums[0], 1));
    __m128i four = _mm_add_epi32(_mm256_castsi256_si128(low), _mm256_extracti128_si256(low, 1));
    four = _mm_add_epi32(four, _mm_shuffle_epi32(four, 0x4e));
    return (uint32_t)_mm_cvtsi128_si32(_mm_add_epi32(four, _mm_shuffle_epi32(four, 0xb1)));
}
