#include "kernels/kernel_table.h"
#include "kernels/x86/lanes_avx2.h"

#define CHAINS 12
#define DOTS_PER_CHAIN 8 /* of an iteration: 32 products each, their pairs summed in int16 */

/* One iteration: int16 chains, widened and added to *sums at the end, which waits in memory: 12 chains, two factors and
 * a product leave it no register. */
static __attribute__((noinline)) void iterate(__m256i *sums, __m256i ws, __m256i xs) {
    const __m256i ones = _mm256_set1_epi16(1);
    __m256i chain[CHAINS];
#pragma GCC unroll 12
    for (int c = 0; c < CHAINS; c++) chain[c] = _mm256_setzero_si256();
#pragma GCC unroll 8
    for (int d = 0; d < DOTS_PER_CHAIN; d++)
#pragma GCC unroll 12
        for (int c = 0; c < CHAINS; c++) {
            /* Equal products would be computed once; out of order they would not fit 16 registers. */
            __asm__ volatile("" : "+x"(ws), "+x"(chain[c]));
            chain[c] = _mm256_add_epi16(chain[c], _mm256_maddubs_epi16(ws, xs));
        }
#pragma GCC unroll 12
    for (int c = 0; c < CHAINS; c++) {
        __asm__ volatile("" : "+x"(chain[c]));
        chain[c] = _mm256_madd_epi16(chain[c], ones);
    }
#pragma GCC unroll 12
    for (int c = 1; c < CHAINS; c++) chain[0] = _mm256_add_epi32(chain[0], chain[c]);
    *sums = _mm256_add_epi32(*sums, chain[0]);
}

uint32_t peak_dots_avx2(int64_t n, uint8_t w, int8_t x) {
    __m256i sums = _mm256_setzero_si256(), ws = _mm256_set1_epi8((char)w), xs = _mm256_set1_epi8(x);
    for (int64_t i = 0; i < n; i++) iterate(&sums, ws, xs);
    __m128i low = _mm_add_epi32(_mm256_castsi256_si128(sums), _mm256_extracti128_si256(sums, 1));
    low = _mm_add_epi32(low, _mm_shuffle_epi32(low, 0x4e));
    return (uint32_t)_mm_cvtsi128_si32(_mm_add_epi32(low, _mm_shuffle_epi32(low, 0xb1)));
}
