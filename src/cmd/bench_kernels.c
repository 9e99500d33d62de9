#include "cmd/bench_kernels.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include <jansson.h>

#include "base/cpu.h"
#include "bench/kernel_bench.h"
#include "cmd/cmd.h"
#include "kernels/pack.h"
#include "planner/hw_profile.h"

#define DEFAULT_TYPES "q4_0,q4_1,q8_0,q4_k,q6_k"
#define MAX_TYPES 16
#define MAX_SIDE 65536
#define MAX_ROUNDS 100
#define ROUND_NS 12000000
#define ROW_OP_ROWS 16
#define TEXT_BYTES 64

struct kernels_bench {
    const struct options *options;
    struct kernel_bench_plan plan;
    struct kernel_table kernels;
    struct thread_pool *pool;
    struct kernel_bench *bench;
    enum dtype dtypes[MAX_TYPES];
    int n_dtypes, n_threads;
    enum act_q8_form form;
    struct hw_peak peak;
    double read_gb_s;
    json_t *products, *attention, *rows;
    struct status_note note;
};

/* A share of a limit that a product or an attention should reach. */
enum limit { LIMIT_NONE, LIMIT_READ, LIMIT_PEAK };

struct target {
    int size; /* rows of a product, head size of an attention */
    enum limit limit;
    double share;
};

/* Source: what prototypes of these kernels reached on one core of a server CPU with AVX-512 VNNI and 4-bit weights of
 * K = N = 2048 that lay in memory; attention over TARGET_KEYS int8 keys. */
static const struct target product_targets[] = {
    {1, LIMIT_READ, 0.85},  {8, LIMIT_READ, 0.60},   {16, LIMIT_PEAK, 0.42},
    {32, LIMIT_PEAK, 0.50}, {128, LIMIT_PEAK, 0.58}, {512, LIMIT_PEAK, 0.63},
};
static const struct target attention_targets[] = {{64, LIMIT_PEAK, 0.16}, {256, LIMIT_PEAK, 0.13}};
#define TARGET_KEYS 16384

/* What such a product can reach: per 8 dots it must convert, multiply and add once. */
#define FORM_CEILING 0.73

static const int row_counts[] = {1, 2, 4, 8, 16, 32, 64, 128, 512};
static const int key_counts[] = {1024, 4096, TARGET_KEYS};
static const int head_dims[] = {64, 256};
static const enum dtype kv_dtypes[] = {DTYPE_I8, DTYPE_Q8_0, DTYPE_F16, DTYPE_F32};

#define N_OF(array) ((int)(sizeof(array) / sizeof(array)[0]))

/* ---- options ---- */

static enum status read_type(const char *name, size_t n_bytes, int k, enum dtype *out, struct status_note *note) {
    char upper[TEXT_BYTES] = "";
    for (size_t i = 0; i < n_bytes && i + 1 < sizeof upper; i++) upper[i] = (char)toupper((unsigned char)name[i]);
    if (n_bytes >= sizeof upper || !dtype_from_name(upper, out) || !pack_is_known(*out))
        return status_fail(note, STATUS_INVALID, "--type: '%.*s' has no product of its own", (int)n_bytes, name);
    if (k % dtype_block_elements(*out))
        return status_fail(note, STATUS_INVALID, "--matrix: K = %d is no multiple of %s's block of %d", k,
                           dtype_name(*out), dtype_block_elements(*out));
    return STATUS_OK;
}

static enum status read_types(struct kernels_bench *bench) {
    const char *at = bench->options->type ? bench->options->type : DEFAULT_TYPES;
    for (;; at++) {
        size_t n_bytes = strcspn(at, ",");
        if (bench->n_dtypes == MAX_TYPES)
            return status_fail(&bench->note, STATUS_INVALID, "--type: more than %d types", MAX_TYPES);
        enum status status = read_type(at, n_bytes, bench->plan.k, &bench->dtypes[bench->n_dtypes++], &bench->note);
        if (status) return status;
        at += n_bytes;
        if (!*at) return STATUS_OK;
    }
}

static enum status read_matrix(struct kernels_bench *bench) {
    const char *text = bench->options->matrix;
    struct kernel_bench_plan *plan = &bench->plan;
    char rest;
    if (sscanf(text, "%5dx%5d%c", &plan->n, &plan->k, &rest) != 2)
        return status_fail(&bench->note, STATUS_INVALID, "--matrix: '%s' is not NxK", text);
    if (plan->n < 1 || plan->n > MAX_SIDE || plan->k < ACT_Q8_BLOCK || plan->k > MAX_SIDE || plan->k % ACT_Q8_BLOCK)
        return status_fail(&bench->note, STATUS_INVALID,
                           "--matrix: %s: N must be within 1..%d, K a multiple of %d up to %d", text, MAX_SIDE,
                           ACT_Q8_BLOCK, MAX_SIDE);
    return STATUS_OK;
}

static enum status read_options(struct kernels_bench *bench) {
    const struct options *options = bench->options;
    unsigned tiers = cpu_detect();
    if (options->rounds < 1 || options->rounds > MAX_ROUNDS)
        return status_fail(&bench->note, STATUS_INVALID, "--rounds: %ld is not within 1..%d", options->rounds,
                           MAX_ROUNDS);
    if (options->threads < 0 || options->threads > THREAD_POOL_MAX_THREADS)
        return status_fail(&bench->note, STATUS_INVALID, "--threads: %ld is not within 0..%d", options->threads,
                           THREAD_POOL_MAX_THREADS);
    bench->n_threads = options->threads ? (int)options->threads : 1;
    bench->plan.n_rounds = (int)options->rounds;
    bench->plan.round_ns = ROUND_NS;
    bench->form = strcmp(options->activations, "int16") == 0 ? ACT_INT16 : ACT_INT8;
    if (bench->form == ACT_INT8 && strcmp(options->activations, "int8") != 0 &&
        strcmp(options->activations, "auto") != 0)
        return status_fail(&bench->note, STATUS_INVALID, "--activations: '%s' is neither int8 nor int16",
                           options->activations);
    enum status status = options->isa ? cpu_mask(tiers, options->isa, &tiers, &bench->note) : STATUS_OK;
    if (!status) status = read_matrix(bench);
    if (!status) status = read_types(bench);
    kernel_table_choose(&bench->kernels, tiers);
    return status;
}

/* ---- lines ---- */

static double share_of(const struct kernels_bench *bench, enum limit limit, const struct kernel_bench_time *time) {
    if (limit == LIMIT_NONE || hw_profile_is_disturbed(&bench->peak)) return NAN;
    return limit == LIMIT_READ ? time->bytes / time->ns / bench->read_gb_s : time->ops / time->ns / bench->peak.gops;
}

static const struct target *find_target(const struct target *targets, int n_targets, int size) {
    for (int i = 0; i < n_targets; i++)
        if (targets[i].size == size) return &targets[i];
    return NULL;
}

/* True when the reading that a target asks for would take more products than the form can make. */
static bool is_beyond_form(const struct kernels_bench *bench, const struct target *target,
                           const struct kernel_bench_time *time) {
    double gops = target->share * bench->read_gb_s * time->ops / time->bytes;
    return target->limit == LIMIT_READ && gops > FORM_CEILING * bench->peak.gops;
}

static void print_verdict(const struct kernels_bench *bench, const struct target *target,
                          const struct kernel_bench_time *time) {
    double share = share_of(bench, target->limit, time);
    printf("   target %2.0f %% of %s: ", 100 * target->share, target->limit == LIMIT_READ ? "read" : "peak");
    if (!isfinite(share))
        fputs("unknown", stdout);
    else if (share >= target->share)
        fputs("PASS", stdout);
    else if (is_beyond_form(bench, target, time))
        printf("short (it would take %.0f %% of peak)",
               100 * target->share * bench->read_gb_s * time->ops / time->bytes / bench->peak.gops);
    else
        fputs("short", stdout);
}

static json_t *share_json(double share) {
    return isfinite(share) ? json_real(share) : json_null();
}

/* One timed line, as text or as an object with the given first fields, which it takes over. */
static enum status report(struct kernels_bench *bench, json_t *list, json_t *fields, const char *what, int size,
                          const struct kernel_bench_time *time, const struct target *target) {
    double read = share_of(bench, LIMIT_READ, time), peak = share_of(bench, time->ops > 0 ? LIMIT_PEAK : 0, time);
    double share = target ? share_of(bench, target->limit, time) : NAN;
    if (!bench->options->json) {
        json_decref(fields);
        printf("%-22s %6d %10.4f ms %8.1f GB/s %5.1f %%", what, size, time->ns / 1e6, time->bytes / time->ns,
               100 * read);
        if (time->ops > 0) printf(" %9.1f GOPS %5.1f %%", time->ops / time->ns, 100 * peak);
        if (target) print_verdict(bench, target, time);
        putchar('\n');
        fflush(stdout);
        return STATUS_OK;
    }
    json_t *times = json_pack("{s:f, s:f, s:f, s:o, s:o}", "ms", time->ns / 1e6, "gb_s", time->bytes / time->ns, "gops",
                              time->ops / time->ns, "read_share", share_json(read), "peak_share", share_json(peak));
    if (times && target)
        json_object_update_new(times, json_pack("{s:f, s:s, s:o}", "target", target->share, "target_of",
                                                target->limit == LIMIT_READ ? "read" : "peak", "passes",
                                                isfinite(share) ? json_boolean(share >= target->share) : json_null()));
    if (!fields || !times || json_object_update(fields, times) || json_array_append(list, fields)) {
        json_decref(fields);
        json_decref(times);
        return STATUS_NOMEM;
    }
    json_decref(times);
    json_decref(fields);
    return STATUS_OK;
}

static void print_skipped(const struct kernels_bench *bench, const char *what, int size) {
    if (!bench->options->json) printf("%-22s %6d   too slow to be measured\n", what, size);
}

/* ---- measuring ---- */

static enum status measure_products(struct kernels_bench *bench, enum dtype dtype) {
    bool is_float = dtype_block_elements(dtype) == 1;
    const char *form = is_float ? "f32" : bench->form == ACT_INT16 ? "int16" : "int8";
    enum status status = STATUS_OK;
    char what[TEXT_BYTES];
    snprintf(what, sizeof what, "gemm %s, %s", dtype_name(dtype), form);
    kernel_bench_weights(bench->bench, dtype);
    for (int i = 0; i < N_OF(row_counts) && !status; i++) {
        struct kernel_bench_time time;
        if (!kernel_bench_gemm(bench->bench, row_counts[i], bench->form, &time)) {
            print_skipped(bench, what, row_counts[i]);
            break;
        }
        json_t *fields = json_pack("{s:s, s:s, s:i, s:i, s:i}", "type", dtype_name(dtype), "activations", form, "n",
                                   bench->plan.n, "k", bench->plan.k, "rows", row_counts[i]);
        bool has_targets = !is_float && bench->form == ACT_INT8;
        status = report(bench, bench->products, fields, what, row_counts[i], &time,
                        has_targets ? find_target(product_targets, N_OF(product_targets), row_counts[i]) : NULL);
    }
    return status;
}

static enum status measure_attention(struct kernels_bench *bench, enum dtype dtype, int head_dim, int n_rows) {
    enum status status = STATUS_OK;
    char what[TEXT_BYTES];
    snprintf(what, sizeof what, "attention %s, %d x %d", dtype_name(dtype), n_rows, head_dim);
    for (int i = 0; i < N_OF(key_counts) && !status; i++) {
        struct kernel_bench_time time;
        if (!kernel_bench_attention(bench->bench, dtype, head_dim, n_rows, key_counts[i], &time)) {
            print_skipped(bench, what, key_counts[i]);
            break;
        }
        json_t *fields = json_pack("{s:s, s:i, s:i, s:i}", "type", dtype_name(dtype), "head_dim", head_dim, "rows",
                                   n_rows, "keys", key_counts[i]);
        bool has_target = dtype == DTYPE_I8 && key_counts[i] == TARGET_KEYS && n_rows > 1;
        status = report(bench, bench->attention, fields, what, key_counts[i], &time,
                        has_target ? find_target(attention_targets, N_OF(attention_targets), head_dim) : NULL);
    }
    return status;
}

static enum status measure_all_attention(struct kernels_bench *bench) {
    enum status status = STATUS_OK;
    for (int t = 0; t < N_OF(kv_dtypes); t++)
        for (int h = 0; h < N_OF(head_dims) && !status; h++) {
            status = measure_attention(bench, kv_dtypes[t], head_dims[h], ATTENTION_MAX_ROWS);
            if (!status) status = measure_attention(bench, kv_dtypes[t], head_dims[h], 1);
        }
    return status;
}

static enum status measure_rows(struct kernels_bench *bench) {
    const char *name;
    struct kernel_bench_time time;
    enum status status = STATUS_OK;
    for (int i = 0; !status && kernel_bench_row_op(bench->bench, i, ROW_OP_ROWS, &name, &time); i++) {
        if (time.ns <= 0)
            print_skipped(bench, name, ROW_OP_ROWS);
        else
            status = report(bench, bench->rows, json_pack("{s:s, s:i}", "op", name, "rows", ROW_OP_ROWS), name,
                            ROW_OP_ROWS, &time, NULL);
    }
    return status;
}

static enum status measure_limits(struct kernels_bench *bench) {
    enum status status = hw_profile_read_gb_s(bench->pool, HW_PROFILE_READ_BYTES, &bench->read_gb_s);
    if (!status) status = hw_profile_int8_peak(bench->pool, &bench->kernels, HW_PROFILE_PEAK_NS, &bench->peak);
    return status ? status_fail(&bench->note, status, "no memory to measure the machine with") : STATUS_OK;
}

static enum status measure(struct kernels_bench *bench) {
    enum status status = thread_pool_create(&bench->pool, bench->n_threads);
    if (status) return status_fail(&bench->note, status, "cannot start %d threads", bench->n_threads);
    status = measure_limits(bench);
    if (status) return status;
    bench->plan.kernels = &bench->kernels;
    bench->plan.pool = bench->pool;
    status = kernel_bench_open(&bench->bench, &bench->plan);
    if (status) return status_fail(&bench->note, status, "no memory for a matrix of %s", bench->options->matrix);
    if (!bench->options->json) {
        printf("%d thread%s, %s kernels, weights %d x %d from memory; int8 peak %.0f GOPS, read %.1f GB/s\n",
               bench->n_threads, bench->n_threads == 1 ? "" : "s", bench->kernels.tier, bench->plan.n, bench->plan.k,
               bench->peak.gops, bench->read_gb_s);
        printf("%-22s %6s %13s %13s of read %11s of peak\n", "kernel", "rows", "time", "read", "done");
    }
    for (int i = 0; i < bench->n_dtypes && !status; i++) status = measure_products(bench, bench->dtypes[i]);
    if (!status) status = measure_all_attention(bench);
    if (!status) status = measure_rows(bench);
    return status;
}

/* ---- the command ---- */

static enum status print_json(struct kernels_bench *bench) {
    bool is_disturbed = hw_profile_is_disturbed(&bench->peak);
    json_t *root = json_pack("{s:s, s:i, s:f, s:f, s:f, s:b, s:O, s:O, s:O}", "tier", bench->kernels.tier, "threads",
                             bench->n_threads, "int8_peak_gops", bench->peak.gops, "undisturbed_gops",
                             bench->peak.undisturbed_gops, "read_gb_s", bench->read_gb_s, "is_disturbed", is_disturbed,
                             "gemm", bench->products, "attention", bench->attention, "row_ops", bench->rows);
    if (!root) return STATUS_NOMEM;
    json_dumpf(root, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(6));
    putchar('\n');
    json_decref(root);
    return STATUS_OK;
}

static int run(struct kernels_bench *bench) {
    if (read_options(bench)) return cmd_usage("bench", "%s", bench->note.text);
    bench->products = json_array();
    bench->attention = json_array();
    bench->rows = json_array();
    enum status status = bench->products && bench->attention && bench->rows ? measure(bench) : STATUS_NOMEM;
    if (!status && bench->options->json) status = print_json(bench);
    if (!status && hw_profile_is_disturbed(&bench->peak) && !bench->options->json)
        printf("no shares: the machine is disturbed (int8 peak %.0f GOPS, undisturbed %.0f)\n", bench->peak.gops,
               bench->peak.undisturbed_gops);
    return status ? cmd_fail(NULL, status, &bench->note) : 0;
}

int bench_kernels(const struct options *options) {
    struct kernels_bench bench = {.options = options};
    int exit_code = run(&bench);
    kernel_bench_close(&bench.bench);
    if (bench.pool) thread_pool_destroy(&bench.pool);
    json_decref(bench.products);
    json_decref(bench.attention);
    json_decref(bench.rows);
    return exit_code;
}
