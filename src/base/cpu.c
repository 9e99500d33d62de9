#include "base/cpu.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>

#if defined(__aarch64__)
#include <sys/auxv.h>
#define HWCAP_BIT_ASIMDDP (1ul << 20) /* arch/arm64/include/uapi/asm/hwcap.h */
#define HWCAP2_BIT_I8MM (1ul << 13)
#endif

struct tier {
    const char *name, *text;
};

static const struct tier tiers_of[] = {
#define XX(name, bit, text) {#name, text},
    CPU_TIER_MAP(XX)
#undef XX
};

#define N_TIERS ((int)(sizeof tiers_of / sizeof tiers_of[0]))

int cpu_n_tiers(void) {
    return N_TIERS;
}

const char *cpu_tier_name(int tier_idx) {
    return tiers_of[tier_idx].name;
}

const char *cpu_tier_text(int tier_idx) {
    return tiers_of[tier_idx].text;
}

#if defined(__x86_64__)
/* The builtin also asks XGETBV, so a tier whose registers the kernel does not save is not reported. */
unsigned cpu_detect(void) {
    unsigned tiers = CPU_TIER_scalar;
    __builtin_cpu_init();
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma") || !__builtin_cpu_supports("f16c") ||
        !__builtin_cpu_supports("bmi2"))
        return tiers;
    tiers |= CPU_TIER_avx2;
    if (__builtin_cpu_supports("avxvnni")) tiers |= CPU_TIER_avxvnni;
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512vnni"))
        tiers |= CPU_TIER_avx512vnni;
    return tiers;
}
#elif defined(__aarch64__)
unsigned cpu_detect(void) {
    unsigned tiers = CPU_TIER_scalar | CPU_TIER_neon;
    if (!(getauxval(AT_HWCAP) & HWCAP_BIT_ASIMDDP)) return tiers;
    tiers |= CPU_TIER_dotprod;
    if (getauxval(AT_HWCAP2) & HWCAP2_BIT_I8MM) tiers |= CPU_TIER_i8mm;
    return tiers;
}
#endif

enum status cpu_mask(unsigned tiers, const char *name, unsigned *out_tiers, struct status_note *note) {
    for (int i = 0; i < N_TIERS; i++) {
        if (strcmp(tiers_of[i].name, name) != 0) continue;
        if (!(tiers >> i & 1)) return status_fail(note, STATUS_INVALID, "tier '%s': this CPU does not have it", name);
        *out_tiers = tiers & ((2u << i) - 1);
        return STATUS_OK;
    }
    char known[128] = "";
    for (int i = 0, n = 0; i < N_TIERS && n < (int)sizeof known; i++)
        n += snprintf(known + n, sizeof known - (size_t)n, "%s%s", i ? ", " : "", tiers_of[i].name);
    return status_fail(note, STATUS_INVALID, "tier '%s' is unknown (known: %s)", name, known);
}

/* Whole CPUs of a cgroup v2 quota, 0 if there is none. */
static int n_quota_cpus(void) {
    long long quota, period;
    FILE *file = fopen("/sys/fs/cgroup/cpu.max", "re");
    if (!file) return 0;
    int n_read = fscanf(file, "%lld %lld", &quota, &period);
    fclose(file);
    if (n_read != 2 || quota <= 0 || period <= 0) return 0; /* "max" stops the first conversion */
    return (int)((quota + period - 1) / period);
}

int cpu_n_usable(void) {
    cpu_set_t set;
    CPU_ZERO(&set);
    int n = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
    int n_quota = n_quota_cpus();
    if (n_quota > 0 && n_quota < n) n = n_quota;
    return n > 0 ? n : 1;
}
