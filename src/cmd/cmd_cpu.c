#include <stdio.h>

#include "base/cpu.h"
#include "cmd/cmd.h"
#include "kernels/kernel_table.h"

int cmd_cpu(const struct options *options, int n_words, const char **words) {
    (void)words;
    struct status_note note;
    unsigned tiers = cpu_detect(), allowed = tiers;
    if (n_words) return cmd_usage("cpu", "takes no arguments");
    if (options->isa && cpu_mask(tiers, options->isa, &allowed, &note)) return cmd_usage("cpu", "%s", note.text);
    printf("usable CPUs: %d\n\ntiers (--isa TIER uses none better):\n", cpu_n_usable());
    for (int i = 0; i < cpu_n_tiers(); i++)
        printf("  %-11s %-4s %s\n", cpu_tier_name(i),
               allowed >> i & 1 ? "yes"
               : tiers >> i & 1 ? "off"
                                : "no",
               cpu_tier_text(i));
    puts("\nkernels:");
    struct kernel_table table;
    const char *op, *tier;
    kernel_table_choose(&table, allowed);
    for (int i = 0; kernel_table_row(&table, i, &op, &tier); i++) printf("  %-20s %s\n", op, tier);
    return 0;
}
