/* hw_profile: what this machine can do at most: products of bytes, and bytes read from memory.
 *
 * Figures of a machine at work on something else are too low; hw_profile_is_disturbed tells.
 * Thread: the pool's caller; the call keeps every worker busy until it returns. */
#ifndef KVICK_PLANNER_HW_PROFILE_H
#define KVICK_PLANNER_HW_PROFILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "base/thread_pool.h"
#include "kernels/kernel_table.h"

#define HW_PROFILE_PEAK_NS 400000000     /* a peak is measured over at least 0.3 s */
#define HW_PROFILE_READ_BYTES (1u << 30) /* far more than any cache */

/* All rates count a multiply-add as two operations. */
struct hw_peak {
    double gops; /* all threads at once, sum over threads of work / time */
    /* What the same threads would reach with nobody in their way: the sum of each one's best millisecond; where cycles
     * can be counted, macs_per_cycle times all threads' cycles if that is more. */
    double undisturbed_gops;
    bool has_cycles;
    double macs_per_cycle; /* of the best thread in its best millisecond; 0 without cycles */
};

/* Runs peak_dots on every thread of the pool for min_ns. Errors: STATUS_NOMEM. */
WARN_UNUSED enum status hw_profile_int8_peak(struct thread_pool *pool, const struct kernel_table *kernels,
                                             int64_t min_ns, struct hw_peak *out_peak);

/* The better of two peaks: the larger rate, and the larger claim of what it should have been. */
struct hw_peak hw_profile_better_peak(struct hw_peak a, struct hw_peak b);

/* True when a peak stays below 95 % of what the machine does undisturbed: shares of it would flatter. */
bool hw_profile_is_disturbed(const struct hw_peak *peak);

/* Best of several passes over n_bytes (a multiple of 32 MiB) of huge pages by all threads, read in one stream and in
 * four. Errors: STATUS_NOMEM. */
WARN_UNUSED enum status hw_profile_read_gb_s(struct thread_pool *pool, size_t n_bytes, double *out_gb_s);

#endif
