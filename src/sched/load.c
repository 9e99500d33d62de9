#include "sched/load.h"

#include <math.h>

#define MIN_SPAN_NS 5e9 /* a burst at the very start is no rate yet */
#define MIN_LIKELY_SPAN_NS 20e9
#define MAX_STRETCH 5.0 /* of a time by newcomers */
#define N_PIECES 4      /* in which a prompt's own work is looked at */
#define N_ROUNDS 12
#define MEDIAN_GAP 1 /* so many of the largest newcomers will as likely as not stay away */

static int size_of(int64_t work_ns) {
    int size = 0;
    for (work_ns >>= 21; work_ns > 0 && size < LOAD_N_SIZES - 1; work_ns >>= 1) size++;
    return size;
}

/* What is left of the sums after a time; 1 / (1 + x) is close to exp(-x) for the short times between arrivals. */
static double kept(int64_t passed_ns) {
    return 1 / (1 + (double)passed_ns / (double)LOAD_TIME_NS);
}

/* What the sums are worth now, and the time that they stand for. */
struct decay {
    double keep, span_ns;
};

static struct decay decay_of(const struct load *load, int64_t now_ns) {
    int64_t passed_ns = load->last_ns && now_ns > load->last_ns ? now_ns - load->last_ns : 0;
    double keep = kept(passed_ns);
    return (struct decay){keep, load->span_ns * keep + (double)passed_ns};
}

void load_add(struct load *load, const struct terms *terms, int64_t work_ns, int64_t now_ns) {
    struct decay decay = decay_of(load, now_ns);
    for (int c = 0; c < TERMS_N_CLASSES; c++)
        for (int t = 0; t < TERMS_MAX_TENANTS; t++)
            for (int s = 0; s < LOAD_N_SIZES; s++) {
                load->sizes[c][t][s].work_ns *= decay.keep;
                load->sizes[c][t][s].n *= decay.keep;
            }
    load->span_ns = decay.span_ns;
    load->last_ns = now_ns;
    struct load_size *size = &load->sizes[terms->service_class][terms->tenant][size_of(work_ns)];
    size->work_ns += (double)work_ns;
    size->n += 1;
}

static double tenant_work_ns(const struct load *load, int tenant) {
    double work_ns = 0;
    for (int c = 0; c < TERMS_N_CLASSES; c++)
        for (int s = 0; s < LOAD_N_SIZES; s++) work_ns += load->sizes[c][tenant][s].work_ns;
    return work_ns;
}

double load_share(const struct load *load, int64_t now_ns) {
    struct decay decay = decay_of(load, now_ns);
    double work_ns = 0;
    for (int t = 0; t < TERMS_MAX_TENANTS; t++) work_ns += tenant_work_ns(load, t);
    return work_ns * decay.keep / fmax(decay.span_ns, MIN_SPAN_NS);
}

/* ---- who overtakes ---- */

/* The part of a class's and tenant's prompts of size s that are shorter than limit_ns. */
static double part_below(int s, double limit_ns) {
    double low_ns = s == 0 ? 0 : ldexp(1, 20 + s), high_ns = ldexp(1, 21 + s);
    return limit_ns >= high_ns ? 1 : limit_ns <= low_ns ? 0 : (limit_ns - low_ns) / (high_ns - low_ns);
}

/* Adds by size what came that would overtake the prompt while left_ns of it are left, times weight. */
static void add_overtakers(const struct load *load, const struct load_prompt *prompt, double left_ns, double weight,
                           struct load_size sums[LOAD_N_SIZES]) {
    int class_ = (int)prompt->terms->service_class, tenant = prompt->terms->tenant;
    double done_ns = (double)prompt->work_ns - left_ns;
    for (int c = 0; c <= class_; c++)
        for (int t = 0; t < TERMS_MAX_TENANTS; t++) {
            double limit_ns = t == tenant ? left_ns : (double)prompt->tenant_ns - done_ns;
            if (c < class_ || (prompt->is_heavy[tenant] && !prompt->is_heavy[t])) limit_ns = INFINITY;
            if (c == class_ && prompt->is_heavy[t] && !prompt->is_heavy[tenant]) limit_ns = 0;
            for (int s = 0; s < LOAD_N_SIZES; s++) {
                double part = weight * part_below(s, limit_ns);
                sums[s].work_ns += part * load->sizes[c][t][s].work_ns;
                sums[s].n += part * load->sizes[c][t][s].n;
            }
        }
}

/* Their work when stretch times as many come, without the n_without largest. */
static double work_without(const struct load_size sums[LOAD_N_SIZES], double stretch, double n_without) {
    double work_ns = 0;
    for (int s = LOAD_N_SIZES - 1; s >= 0; s--) {
        double n = sums[s].n * stretch;
        if (n <= 0) continue;
        double n_left = n > n_without ? n - n_without : 0;
        n_without -= n - n_left;
        work_ns += sums[s].work_ns * stretch * (n_left / n);
    }
    return work_ns;
}

/* Those who come while newcomers are served are newcomers too. */
static double delay_without(const struct load_size sums[LOAD_N_SIZES], double estimate_ns, double n_without) {
    double delay_ns = 0;
    for (int i = 0; i < N_ROUNDS; i++) {
        double stretch = 1 + delay_ns / estimate_ns;
        if (stretch > MAX_STRETCH) return (MAX_STRETCH - 1) * estimate_ns;
        delay_ns = work_without(sums, stretch, n_without);
    }
    return delay_ns;
}

struct load_delay load_delay_of(const struct load *load, const struct load_prompt *prompt, int64_t now_ns) {
    struct load_size sums[LOAD_N_SIZES] = {{0}};
    struct decay decay = decay_of(load, now_ns);
    double span_ns = fmax(decay.span_ns, MIN_SPAN_NS), likely_span_ns = fmax(decay.span_ns, MIN_LIKELY_SPAN_NS);
    double estimate_ns = (double)prompt->estimate_ns, own_ns = (double)prompt->work_ns * prompt->stretch;
    if (own_ns > estimate_ns) own_ns = estimate_ns;
    if (estimate_ns <= 0) return (struct load_delay){0};
    add_overtakers(load, prompt, (double)prompt->work_ns, (estimate_ns - own_ns) * decay.keep / span_ns, sums);
    for (int i = 0; i < N_PIECES; i++) {
        double left_ns = (double)prompt->work_ns * (1 - (i + 0.5) / N_PIECES);
        add_overtakers(load, prompt, left_ns, own_ns / N_PIECES * decay.keep / span_ns, sums);
    }
    for (int s = 0; s < LOAD_N_SIZES; s++) sums[s].work_ns *= prompt->stretch;
    struct load_delay delay = {.mean_ns = delay_without(sums, estimate_ns, 0)};
    for (int s = 0; s < LOAD_N_SIZES; s++) {
        sums[s].work_ns *= span_ns / likely_span_ns;
        sums[s].n *= span_ns / likely_span_ns;
    }
    delay.likely_ns = delay_without(sums, estimate_ns, MEDIAN_GAP);
    return delay;
}

void load_find_heavy(const struct load *load, const double weights[TERMS_MAX_TENANTS],
                     bool out_is_heavy[TERMS_MAX_TENANTS]) {
    double sums[TERMS_MAX_TENANTS], total = 0, total_weight = 0;
    for (int t = 0; t < TERMS_MAX_TENANTS; t++) {
        sums[t] = tenant_work_ns(load, t);
        total += sums[t];
        total_weight += sums[t] > 0 ? weights[t] : 0;
    }
    for (int t = 0; t < TERMS_MAX_TENANTS; t++)
        out_is_heavy[t] = sums[t] * (total_weight - weights[t]) > LOAD_HEAVY_FACTOR * (total - sums[t]) * weights[t];
}
