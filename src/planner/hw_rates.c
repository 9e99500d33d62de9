#include "planner/hw_rates.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "base/field_list.h"
#include "base/thread_pool.h"
#include "planner/hw_profile.h"

#define MAX_FILE_BYTES 4096
#define MEASURE_NS 5000000

/* What kvick's own kernels reach on the machines it was measured on; other engines on GPUs are about there, too. */
#define MIN_PREFILL 0.40
#define MAX_PREFILL 0.60
#define MIN_DECODE 0.60
#define MAX_DECODE 0.90

/* What is read to be measured, of each thread: together more than caches hold, unless they are very large ones. */
#define READ_BYTES ((size_t)32 << 20)
#define MIN_READERS 8
#define FREE_BY_READ 4

/* The guess: per core, up to where a desktop's memory ends. */
#define MIN_CORE_GB_S 6.0
#define MAX_CORE_GB_S 20.0
#define MAX_CORES 4

static const struct {
    const char *name, *what;
    double gops, gb_s, memory_gb;
} machines[] = {
#define HW(name, what, gops, gb_s, memory_gb) {name, what, gops, gb_s, memory_gb},
#include "planner/hw_rates.inc"
#undef HW
};

#define N_MACHINES (sizeof machines / sizeof machines[0])

static const struct field_row fields[] = {
#define FIELD(name, min, max)                                                                                          \
    { #name, offsetof(struct hw_rates, name), min, max, false }
    FIELD(gops, 0.001, 1e12),       FIELD(gb_s, 0.001, 1e9),        FIELD(memory_gb, 0.001, 1e9),
    FIELD(min_prefill, 0.001, 1.0), FIELD(max_prefill, 0.001, 1.0), FIELD(min_decode, 0.001, 1.0),
    FIELD(max_decode, 0.001, 1.0),
#undef FIELD
};

static struct hw_rates usual_shares(void) {
    return (struct hw_rates){
        .min_prefill = MIN_PREFILL, .max_prefill = MAX_PREFILL, .min_decode = MIN_DECODE, .max_decode = MAX_DECODE};
}

static enum status read_file(struct hw_rates *rates, const char *path, FILE *file, struct status_note *note) {
    char text[MAX_FILE_BYTES + 1];
    size_t n = fread(text, 1, sizeof text, file);
    if (n > MAX_FILE_BYTES || memchr(text, 0, n))
        return status_fail(note, STATUS_INVALID, "%s: no text of at most %d bytes", path, MAX_FILE_BYTES);
    text[n] = 0;
    *rates = usual_shares();
    snprintf(rates->name, sizeof rates->name, "%.127s", path);
    enum status status = field_list_read(text, fields, (int)(sizeof fields / sizeof fields[0]), rates, note);
    if (!status && (rates->gops <= 0 || rates->gb_s <= 0))
        status = status_fail(note, STATUS_INVALID, "gops and gb_s are needed");
    if (!status && (rates->min_prefill > rates->max_prefill || rates->min_decode > rates->max_decode))
        status = status_fail(note, STATUS_INVALID, "a min_ share is above its max_ share");
    if (status) status_note_prefix(note, path);
    return status;
}

enum status hw_rates_find(struct hw_rates *rates, const char *name_or_path, struct status_note *note) {
    char list[256] = "";
    for (size_t i = 0, at = 0; i < N_MACHINES; i++) {
        if (strcmp(name_or_path, machines[i].name) == 0) {
            *rates = usual_shares();
            snprintf(rates->name, sizeof rates->name, "%s (%s)", machines[i].name, machines[i].what);
            rates->gops = machines[i].gops;
            rates->gb_s = machines[i].gb_s;
            rates->memory_gb = machines[i].memory_gb;
            return STATUS_OK;
        }
        if (at < sizeof list)
            at += (size_t)snprintf(list + at, sizeof list - at, "%s%s", i ? ", " : "", machines[i].name);
    }
    FILE *file = fopen(name_or_path, "re");
    if (!file)
        return status_fail(note, STATUS_INVALID, "'%s' is no machine (known: %s) and no file that can be read: %s",
                           name_or_path, list, strerror(errno));
    enum status status = read_file(rates, name_or_path, file, note);
    fclose(file);
    return status;
}

/* Rates of a pool's threads, into usual shares. */
static enum status measure(struct hw_rates *rates, struct thread_pool *pool, unsigned tiers, size_t free_bytes) {
    int n_threads = thread_pool_n_threads(pool);
    size_t n_bytes = READ_BYTES * (size_t)(n_threads > MIN_READERS ? n_threads : MIN_READERS);
    struct kernel_table kernels;
    struct hw_peak peak;
    kernel_table_choose(&kernels, tiers);
    enum status status = hw_profile_int8_peak(pool, &kernels, MEASURE_NS, &peak);
    if (status) return status;
    rates->gops = peak.undisturbed_gops > peak.gops ? peak.undisturbed_gops : peak.gops;
    rates->is_read_guessed = free_bytes / FREE_BY_READ < n_bytes || hw_profile_is_disturbed(&peak);
    if (!rates->is_read_guessed) return hw_profile_read_gb_s(pool, n_bytes, &rates->gb_s);
    rates->gb_s = MAX_CORE_GB_S * (n_threads < MAX_CORES ? n_threads : MAX_CORES);
    rates->min_decode = MIN_CORE_GB_S / MAX_CORE_GB_S;
    return STATUS_OK;
}

enum status hw_rates_of_this(struct hw_rates *rates, int n_threads, unsigned tiers, size_t free_bytes,
                             struct status_note *note) {
    struct thread_pool *pool;
    enum status status = thread_pool_create(&pool, n_threads);
    if (status) return status_fail(note, status, "no %d threads", n_threads);
    *rates = usual_shares();
    snprintf(rates->name, sizeof rates->name, "this machine, %d threads", n_threads);
    status = measure(rates, pool, tiers, free_bytes);
    thread_pool_destroy(&pool);
    return status ? status_fail(note, status, "no memory to measure with") : STATUS_OK;
}
