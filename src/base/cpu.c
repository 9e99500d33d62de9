#include "base/cpu.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#elif defined(__aarch64__)
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
/* Bits of CPUID and XCR0.   Source: Intel SDM volume 2, CPUID; volume 1, 13.3. */
#define LEAF1_ECX_AVX2_NEEDS (1u << 12 | 1u << 27 | 1u << 29)        /* FMA, OSXSAVE, F16C */
#define LEAF7_EBX_AVX2_NEEDS (1u << 5 | 1u << 8)                     /* AVX2, BMI2 */
#define LEAF7_EBX_AVX512 (1u << 16 | 1u << 17 | 1u << 30 | 1u << 31) /* F, DQ, BW, VL */
#define LEAF7_ECX_AVX512_VNNI (1u << 11)
#define LEAF7_EDX_AMX (1u << 24 | 1u << 25) /* TILE, INT8 */
#define LEAF7_1_EAX_AVX_VNNI (1u << 4)
#define XCR0_AVX 0x06u             /* the kernel saves xmm and ymm */
#define XCR0_AVX512 0xe6u          /* and masks and zmm */
#define XCR0_AMX 0x60000u          /* and tiles and their configuration */
#define ARCH_REQ_XCOMP_PERM 0x1023 /* of arch_prctl: Linux's Documentation/arch/x86/xstate.rst */
#define XFEATURE_TILE_DATA 18

static bool has_all(unsigned bits, unsigned wanted) {
    return (bits & wanted) == wanted;
}

static unsigned read_xcr0(void) {
    unsigned low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return low;
}

/* Linux saves tiles only for those who ask; one grant holds for all threads of the process. */
static bool may_use_tiles(void) {
    return syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_TILE_DATA) == 0;
}

unsigned cpu_detect(void) {
    unsigned tiers = CPU_TIER_scalar, a, b, c, d, ignored;
    if (!__get_cpuid(1, &ignored, &ignored, &c, &d) || !has_all(c, LEAF1_ECX_AVX2_NEEDS)) return tiers;
    unsigned saved = read_xcr0();
    if (!has_all(saved, XCR0_AVX) || !__get_cpuid_count(7, 0, &a, &b, &c, &d) || !has_all(b, LEAF7_EBX_AVX2_NEEDS))
        return tiers;
    tiers |= CPU_TIER_avx2;
    if (has_all(b, LEAF7_EBX_AVX512) && has_all(c, LEAF7_ECX_AVX512_VNNI) && has_all(saved, XCR0_AVX512))
        tiers |= CPU_TIER_avx512vnni;
    if ((tiers & CPU_TIER_avx512vnni) && has_all(d, LEAF7_EDX_AMX) && has_all(saved, XCR0_AMX) && may_use_tiles())
        tiers |= CPU_TIER_amx;
    if (a >= 1 && __get_cpuid_count(7, 1, &a, &b, &c, &d) && has_all(a, LEAF7_1_EAX_AVX_VNNI))
        tiers |= CPU_TIER_avxvnni;
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
