#include "kernels/kernel_table.h"

#include "base/cpu.h"
#include "kernels/pack.h"

void kernel_table_choose(struct kernel_table *table, unsigned tiers) {
    unsigned best = 0;
    *table = (struct kernel_table){0};
    tiers |= CPU_TIER_scalar;
#define KERNEL(op_name, of_tier)                                                                                       \
    if (tiers & CPU_TIER_##of_tier) {                                                                                  \
        table->op_name = op_name##_##of_tier;                                                                          \
        table->op_name##_tier = #of_tier;                                                                              \
        if (CPU_TIER_##of_tier > best) best = CPU_TIER_##of_tier, table->tier = #of_tier;                              \
    }
#if defined(KVICK_SCALAR_ONLY)
#define KERNEL_X86(op_name, tier)
#define KERNEL_ARM(op_name, tier)
#elif defined(__x86_64__)
#define KERNEL_X86 KERNEL
#define KERNEL_ARM(op_name, tier)
#else
#define KERNEL_X86(op_name, tier)
#define KERNEL_ARM KERNEL
#endif
#include "kernels/registry.inc"
#undef KERNEL
#undef KERNEL_X86
#undef KERNEL_ARM
}

gemm_q8_fn *kernel_table_gemm_q8(const struct kernel_table *table, enum dtype dtype) {
    switch (pack_order(dtype)) {
    case DTYPE_Q4_0: return table->gemm_q4_0;
    case DTYPE_Q4_1: return table->gemm_q4_1;
    case DTYPE_Q5_0: return table->gemm_q5_0;
    case DTYPE_Q5_1: return table->gemm_q5_1;
    case DTYPE_Q8_0: return table->gemm_q8_0;
    case DTYPE_Q4_K: return table->gemm_q4_k;
    case DTYPE_Q5_K: return table->gemm_q5_k;
    case DTYPE_Q6_K: return table->gemm_q6_k;
    case DTYPE_Q2_K: return table->gemm_q2_k;
    case PACK_WIDE_32: return table->gemm_wide_32;
    case PACK_WIDE_16: return table->gemm_wide_16;
    default: return NULL;
    }
}

gemm_float_fn *kernel_table_gemm_float(const struct kernel_table *table, enum dtype dtype) {
    switch (dtype) {
    case DTYPE_F32: return table->gemm_f32;
    case DTYPE_F16: return table->gemm_f16;
    case DTYPE_BF16: return table->gemm_bf16;
    default: return NULL;
    }
}

bool kernel_table_row(const struct kernel_table *table, int op_idx, const char **out_op, const char **out_tier) {
    int i = 0;
#define OP(op_name, type)                                                                                              \
    if (i++ == op_idx) {                                                                                               \
        *out_op = #op_name;                                                                                            \
        *out_tier = table->op_name##_tier;                                                                             \
        return true;                                                                                                   \
    }
#include "kernels/ops.inc"
#undef OP
    return false;
}
