/* kernel_table: the chosen kernel of every operation.
 *
 * Thread: any; const once chosen. There is no global table: whoever computes is handed one. */
#ifndef KVICK_KERNELS_KERNEL_TABLE_H
#define KVICK_KERNELS_KERNEL_TABLE_H

#include "kernels/dtype.h"
#include "kernels/kernel_ops.h"

/* Every kernel of this build, so that a definition that differs from the contract does not compile. */
#define OP(op, type) typedef type kernel_type_##op;
#include "kernels/ops.inc"
#undef OP
#if defined(KVICK_SCALAR_ONLY)
#define KERNEL_X86(op, tier)
#define KERNEL_ARM(op, tier)
#elif defined(__x86_64__)
#define KERNEL_X86(op, tier) kernel_type_##op op##_##tier;
#define KERNEL_ARM(op, tier)
#else
#define KERNEL_X86(op, tier)
#define KERNEL_ARM(op, tier) kernel_type_##op op##_##tier;
#endif
#define KERNEL(op, tier) kernel_type_##op op##_##tier;
#include "kernels/registry.inc"
#undef KERNEL
#undef KERNEL_X86
#undef KERNEL_ARM

struct kernel_table {
    const char *tier; /* the best of any kernel below: what a measured time belongs to */
#define OP(op, type)                                                                                                   \
    type *op;                                                                                                          \
    const char *op##_tier;
#include "kernels/ops.inc"
#undef OP
};

/* The best kernels whose tier is among tiers (bits of base/cpu.h; scalar is always allowed). */
void kernel_table_choose(struct kernel_table *table, unsigned tiers);

/* The product for packed weights of this type; NULL if there is none. */
gemm_q8_fn *kernel_table_gemm_q8(const struct kernel_table *table, enum dtype dtype);
gemm_float_fn *kernel_table_gemm_float(const struct kernel_table *table, enum dtype dtype);

/* For `kvick cpu`: the name and chosen tier of operation op_idx; false past the last. */
bool kernel_table_row(const struct kernel_table *table, int op_idx, const char **out_op, const char **out_tier);

#endif
