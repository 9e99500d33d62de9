#include "sched/load.h"

#define MIN_SPAN_NS ((double)LOAD_TIME_NS) /* a burst at the very start is no rate yet */

static int size_of(int64_t work_ns) {
    int size = 0;
    for (work_ns >>= 21; work_ns > 0 && size < LOAD_N_SIZES - 1; work_ns >>= 1) size++;
    return size;
}

/* What is left of the sums after a time; 1 / (1 + x) is close to exp(-x) for the short times between arrivals. */
static double kept(int64_t passed_ns) {
    return 1 / (1 + (double)passed_ns / (double)LOAD_TIME_NS);
}

void load_add(struct load *load, int tenant, int64_t work_ns, int64_t now_ns) {
    int64_t passed_ns = load->last_ns && now_ns > load->last_ns ? now_ns - load->last_ns : 0;
    double keep = kept(passed_ns);
    for (int t = 0; t < TERMS_MAX_TENANTS; t++)
        for (int s = 0; s < LOAD_N_SIZES; s++) load->work_ns[t][s] *= keep;
    load->span_ns = load->span_ns * keep + (double)passed_ns;
    load->last_ns = now_ns;
    load->work_ns[tenant][size_of(work_ns)] += (double)work_ns;
}

double load_share(const struct load *load, int tenant, int64_t own_ns, int64_t others_ns,
                  const bool is_heavy[TERMS_MAX_TENANTS], int64_t now_ns) {
    int64_t passed_ns = load->last_ns && now_ns > load->last_ns ? now_ns - load->last_ns : 0;
    double keep = kept(passed_ns), sum = 0, span_ns = load->span_ns * keep + (double)passed_ns;
    for (int t = 0; t < TERMS_MAX_TENANTS; t++)
        for (int s = 0, end = is_heavy[t] && !is_heavy[tenant] ? 0 : size_of(t == tenant ? own_ns : others_ns); s < end;
             s++)
            sum += load->work_ns[t][s];
    return sum * keep / (span_ns > MIN_SPAN_NS ? span_ns : MIN_SPAN_NS);
}

void load_find_heavy(const struct load *load, const double weights[TERMS_MAX_TENANTS],
                     bool out_is_heavy[TERMS_MAX_TENANTS]) {
    double sums[TERMS_MAX_TENANTS] = {0}, total = 0, total_weight = 0;
    for (int t = 0; t < TERMS_MAX_TENANTS; t++) {
        for (int s = 0; s < LOAD_N_SIZES; s++) sums[t] += load->work_ns[t][s];
        total += sums[t];
        total_weight += sums[t] > 0 ? weights[t] : 0;
    }
    for (int t = 0; t < TERMS_MAX_TENANTS; t++)
        out_is_heavy[t] = sums[t] * total_weight > LOAD_HEAVY_FACTOR * total * weights[t];
}
