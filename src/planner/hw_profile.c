#include "planner/hw_profile.h"

#include <math.h>

#include "base/clock.h"
#include "base/mem.h"
#include "planner/cycle_counter.h"

#define MIN_SHARE 0.95
#define WINDOW_NS 1000000 /* short enough that some windows run without a change of threads */
#define WARM_UP_NS 20000000
#define FACTOR_W 15
#define FACTOR_X 127

#define SLICE_BYTES ((size_t)32 << 20) /* of one task */
#define READ_PASSES 4
#define STREAMS 4

/* ---- products ---- */

struct spin {
    const struct kernel_table *kernels;
    int64_t min_ns;
    struct spin_result *results; /* [n_threads] */
};

struct spin_result {
    int64_t start_ns, end_ns;
    double macs, best_macs_per_ns; /* of the whole run, of the best window */
    double cycles, best_macs_per_cycle;
    bool has_cycles;
    _Alignas(64) uint32_t sum; /* keeps the work alive, and the threads off one another's lines */
};

/* Iterations of about one window; the clock reaches its working speed meanwhile. */
static int64_t warm_up(peak_dots_fn *dots, uint32_t *sum) {
    int64_t n = 1000, start_ns = clock_now_ns(), now_ns, took_ns;
    do {
        int64_t from_ns = clock_now_ns();
        *sum += dots(n, FACTOR_W, FACTOR_X);
        now_ns = clock_now_ns();
        took_ns = now_ns - from_ns;
        if (took_ns < WINDOW_NS / 2) n *= 2;
    } while (now_ns - start_ns < WARM_UP_NS || took_ns < WINDOW_NS / 2);
    return n;
}

static void spin_task(void *arg, int task_idx, int worker_idx) {
    const struct spin *spin = arg;
    peak_dots_fn *dots = spin->kernels->peak_dots;
    struct spin_result result = {0};
    struct cycle_counter counter;
    int64_t n = warm_up(dots, &result.sum), now_ns;
    (void)worker_idx;
    result.has_cycles = cycle_counter_open(&counter);
    result.start_ns = now_ns = clock_now_ns();
    double cycles = (double)cycle_counter_read(&counter), macs = (double)n * PEAK_DOTS_MACS;
    while (now_ns - result.start_ns < spin->min_ns) {
        double from_cycles = cycles;
        int64_t from_ns = now_ns;
        result.sum += dots(n, FACTOR_W, FACTOR_X);
        cycles = (double)cycle_counter_read(&counter);
        now_ns = clock_now_ns();
        result.macs += macs;
        result.best_macs_per_ns = fmax(result.best_macs_per_ns, macs / (double)(now_ns - from_ns));
        if (cycles <= from_cycles) continue;
        result.cycles += cycles - from_cycles;
        result.best_macs_per_cycle = fmax(result.best_macs_per_cycle, macs / (cycles - from_cycles));
    }
    result.end_ns = now_ns;
    cycle_counter_close(&counter);
    spin->results[task_idx] = result;
}

static struct hw_peak peak_of(const struct spin_result *results, int n_threads) {
    struct hw_peak peak = {.has_cycles = true};
    double from_cycles = 0;
    int64_t last_start_ns = results[0].start_ns, first_end_ns = results[0].end_ns, longest_ns = 1;
    for (int i = 0; i < n_threads; i++) {
        const struct spin_result *result = &results[i];
        int64_t took_ns = result->end_ns - result->start_ns;
        peak.gops += 2 * result->macs / (double)took_ns;
        peak.undisturbed_gops += 2 * result->best_macs_per_ns;
        peak.has_cycles &= result->has_cycles && result->cycles > 0;
        peak.macs_per_cycle = fmax(peak.macs_per_cycle, result->best_macs_per_cycle);
        from_cycles += result->cycles / (double)took_ns;
        if (result->start_ns > last_start_ns) last_start_ns = result->start_ns;
        if (result->end_ns < first_end_ns) first_end_ns = result->end_ns;
        if (took_ns > longest_ns) longest_ns = took_ns;
    }
    if (peak.has_cycles) peak.undisturbed_gops = fmax(peak.undisturbed_gops, 2 * peak.macs_per_cycle * from_cycles);
    /* Threads that did not run at the same time did not share the machine: their sum means nothing. */
    if (first_end_ns - last_start_ns < longest_ns / 2) peak.gops = 0;
    return peak;
}

enum status hw_profile_int8_peak(struct thread_pool *pool, const struct kernel_table *kernels, int64_t min_ns,
                                 struct hw_peak *out_peak) {
    int n_threads = thread_pool_n_threads(pool);
    struct spin spin = {kernels, min_ns, mem_map_pages((size_t)n_threads * sizeof *spin.results)};
    if (!spin.results) return STATUS_NOMEM;
    thread_pool_run(pool, spin_task, &spin, n_threads);
    *out_peak = peak_of(spin.results, n_threads);
    mem_unmap_pages(spin.results, (size_t)n_threads * sizeof *spin.results);
    return STATUS_OK;
}

struct hw_peak hw_profile_better_peak(struct hw_peak a, struct hw_peak b) {
    struct hw_peak best = a.gops >= b.gops ? a : b;
    best.undisturbed_gops = fmax(a.undisturbed_gops, b.undisturbed_gops);
    return best;
}

bool hw_profile_is_disturbed(const struct hw_peak *peak) {
    return !(peak->gops > 0 && peak->gops >= MIN_SHARE * peak->undisturbed_gops);
}

/* ---- reading ---- */

typedef uint64_t line __attribute__((vector_size(64)));

struct reading {
    line *lines;
    size_t n_lines;
    int n_streams;
    line *seen; /* [n_tasks]: what was read has a use */
};

static void touch_task(void *arg, int task_idx, int worker_idx) {
    const struct reading *reading = arg;
    size_t n = SLICE_BYTES / sizeof(line);
    line *lines = reading->lines + n * (size_t)task_idx;
    (void)worker_idx;
    for (size_t i = 0; i < n; i++) lines[i] = (line){i + 1, (uint64_t)task_idx};
}

static void read_task(void *arg, int task_idx, int worker_idx) {
    const struct reading *reading = arg;
    const size_t n = SLICE_BYTES / sizeof(line);
    const line *at = reading->lines + n * (size_t)task_idx;
    line seen[STREAMS] = {{0}};
    (void)worker_idx;
    if (reading->n_streams == 1)
        for (size_t i = 0; i < n; i += STREAMS)
            for (size_t s = 0; s < STREAMS; s++) seen[s] ^= at[i + s];
    else
        for (size_t i = 0; i < n / STREAMS; i++)
            for (size_t s = 0; s < STREAMS; s++) seen[s] ^= at[s * (n / STREAMS) + i];
    reading->seen[task_idx] = seen[0] ^ seen[1] ^ seen[2] ^ seen[3];
}

enum status hw_profile_read_gb_s(struct thread_pool *pool, size_t n_bytes, double *out_gb_s) {
    int n_tasks = (int)(n_bytes / SLICE_BYTES);
    REQUIRE(n_bytes % SLICE_BYTES == 0 && n_tasks >= 1);
    size_t seen_bytes = (size_t)n_tasks * sizeof(line);
    struct reading reading = {mem_map_pages(n_bytes), n_bytes / sizeof(line), 1, mem_map_pages(seen_bytes)};
    enum status status = reading.lines && reading.seen ? STATUS_OK : STATUS_NOMEM;
    *out_gb_s = 0;
    if (!status) thread_pool_run(pool, touch_task, &reading, n_tasks);
    for (int pass = 0; pass < 2 * READ_PASSES && !status; pass++) {
        reading.n_streams = pass % 2 ? STREAMS : 1;
        int64_t start_ns = clock_now_ns();
        thread_pool_run(pool, read_task, &reading, n_tasks);
        *out_gb_s = fmax(*out_gb_s, (double)n_bytes / (double)(clock_now_ns() - start_ns));
    }
    if (reading.lines) mem_unmap_pages(reading.lines, n_bytes);
    if (reading.seen) mem_unmap_pages(reading.seen, seen_bytes);
    return status;
}
