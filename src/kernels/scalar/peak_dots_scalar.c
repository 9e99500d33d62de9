#include "kernels/kernel_table.h"

/* What every CPU has: vectors of 16 bytes, eight products in int16. */
typedef int16_t halves __attribute__((vector_size(16)));

#define LANES 8
#define CHAINS 12
#define PRODUCTS_PER_CHAIN 16 /* and lane, before the int16 sums are widened */
#define ROUNDS (PEAK_DOTS_MACS / (LANES * CHAINS * PRODUCTS_PER_CHAIN))

static uint32_t lane_sum(const halves *chain) {
    uint32_t sum = 0;
    for (int lane = 0; lane < LANES; lane++) sum += (uint32_t)(int32_t)(*chain)[lane];
    return sum;
}

uint32_t peak_dots_scalar(int64_t n, uint8_t w, int8_t x) {
    halves ws[CHAINS], xs = (halves){0} + (int16_t)x;
    uint32_t sum = 0;
    for (int c = 0; c < CHAINS; c++) ws[c] = (halves){0} + (int16_t)w;
    for (int64_t i = 0; i < ROUNDS * n; i++) {
        halves chain[CHAINS] = {{0}};
        for (int p = 0; p < PRODUCTS_PER_CHAIN; p++) {
            __asm__("" : "+m"(ws)); /* equal products would be computed once */
#pragma GCC unroll 12
            for (int c = 0; c < CHAINS; c++) chain[c] += ws[c] * xs;
        }
        for (int c = 0; c < CHAINS; c++) sum += lane_sum(&chain[c]);
    }
    return sum;
}
