/* hw_rates: what a machine can compute and read, as far as a plan needs it: the limits, and which share of them serving
 * reaches.
 *
 * Thread: main.   Memory: a plain value. */
#ifndef KVICK_PLANNER_HW_RATES_H
#define KVICK_PLANNER_HW_RATES_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

struct hw_rates {
    char name[128];
    double gops;                     /* matrix products a second, a multiply-add is two */
    double gb_s;                     /* memory read */
    bool is_read_guessed;            /* gb_s is, as measuring it was not possible */
    double memory_gb;                /* 0: unknown */
    double min_prefill, max_prefill; /* share of gops that a prefill reaches */
    double min_decode, max_decode;   /* share of gb_s that a decode step reaches */
};

/* One of planner/hw_rates.inc by name, or a file of "gops=N", "gb_s=N", "memory_gb=N", "min_prefill=X" ... lines.
 * Errors: STATUS_INVALID for an unknown name (all are listed) or a bad field, STATUS_IO. */
WARN_UNUSED enum status hw_rates_find(struct hw_rates *rates, const char *name_or_path, struct status_note *note);

/* This machine: products and reading measured on n_threads. Where something else runs, or free_bytes are too few to
 * read more than caches hold, reading is guessed, and the interval wide. tiers: allowed kernels. Errors: STATUS_NOMEM.
 * Cost: a third of a second.
 */
WARN_UNUSED enum status hw_rates_of_this(struct hw_rates *rates, int n_threads, unsigned tiers, size_t free_bytes,
                                         struct status_note *note);

#endif
