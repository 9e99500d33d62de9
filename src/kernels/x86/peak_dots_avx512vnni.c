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
    return (uint32_t)_mm512_reduce_add_epi32(sums[0]);
}
