/* cpu: what this processor can run, as coarse tiers, and which tier is allowed.
 *
 * Thread: any, const data. */
#ifndef KVICK_BASE_CPU_H
#define KVICK_BASE_CPU_H

#include <stdbool.h>

#include "base/status.h"

/* TIER(name, bit, text): worst to best within an architecture. */
#define CPU_TIER_MAP(XX)                                                                                               \
    XX(scalar, 0, "plain C, any CPU")                                                                                  \
    XX(avx2, 1, "AVX2, FMA, F16C, BMI2")                                                                               \
    XX(avxvnni, 2, "avx2 and AVX-VNNI")                                                                                \
    XX(avx512vnni, 3, "avx2 and AVX-512 F, BW, DQ, VL, VNNI")                                                          \
    XX(amx, 4, "avx512vnni and AMX-TILE, AMX-INT8")                                                                    \
    XX(neon, 5, "ARM NEON")                                                                                            \
    XX(dotprod, 6, "neon and DOTPROD")                                                                                 \
    XX(i8mm, 7, "dotprod and I8MM")

enum cpu_tier {
#define XX(name, bit, text) CPU_TIER_##name = 1 << bit,
    CPU_TIER_MAP(XX)
#undef XX
};

/* All tiers that this CPU and kernel can run; scalar is always among them. Where there is AMX, Linux is asked to let
 * this process, with all its threads, use the tile registers; where it refuses, the tier is not among them. */
unsigned cpu_detect(void);

/* Clears from tiers all that are better than the named one.
 * Errors: STATUS_INVALID with the known names, for an unknown name or a tier this CPU does not have. */
WARN_UNUSED enum status cpu_mask(unsigned tiers, const char *name, unsigned *out_tiers, struct status_note *note);

int cpu_n_tiers(void);
const char *cpu_tier_name(int tier_idx);
const char *cpu_tier_text(int tier_idx);

/* CPUs this process may run on: the smaller of its affinity mask and its cgroup's quota, at least 1. */
int cpu_n_usable(void);

#endif
