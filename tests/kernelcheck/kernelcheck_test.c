/* kernelcheck: every kernel that this CPU can run against the scalar one, and the scalar one against its meaning.
 *
 * usage: kernelcheck [--seed N] [op...] | kernelcheck --bench [op]
 * Without flags of a tier the scalar kernels are chosen and checked; then the tiers of this CPU are added one by one
 * and each kernel not seen before is compared bit by bit. One process per check: a crash or a hang is one failure. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cpu.h"
#include "base/thread.h"
#include "kernelcheck/check.h"

#define DEFAULT_SEED 1
#define MAX_JOBS 256
#define MAX_KERNELS 256

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || defined(KVICK_HARD)
#define IS_SLOW true
#else
#define IS_SLOW false
#endif
#define CPU_LIMIT_S (IS_SLOW ? 120 : 20) /* of its own time, so that a busy machine ends no check */
#define TIME_LIMIT_S 280

#define OP(op, type) OP_##op,
enum {
#include "kernels/ops.inc"
    N_OPS
};
#undef OP

#define OP(op, type) #op,
static const char *const op_names[] = {
#include "kernels/ops.inc"
};
#undef OP

typedef void any_fn(void);

/* A row of registry.inc; those of the other architecture have no bit this CPU could report. */
struct kernel_row {
    const char *op, *tier_name;
    unsigned tier;
    bool was_checked;
};

#define KERNEL(op, tier) {#op, #tier, CPU_TIER_##tier, false},
#define KERNEL_X86 KERNEL
#define KERNEL_ARM KERNEL
static struct kernel_row kernel_rows[] = {
#include "kernels/registry.inc"
};
#undef KERNEL
#undef KERNEL_X86
#undef KERNEL_ARM
#define N_KERNEL_ROWS (sizeof kernel_rows / sizeof kernel_rows[0])

struct job {
    char name[64];
    const struct check_row *row;
    check_fn *run;
    struct kernel_table tested;
    pid_t pid;
    FILE *output;
};

static struct kernel_table scalar_table;
static struct job jobs[MAX_JOBS];
static int n_jobs, n_passed, n_failed, n_skipped;
static long *case_counts; /* [MAX_JOBS], shared with the children */
static uint64_t seed = DEFAULT_SEED;
static char **only_ops;
static int n_only_ops;

/* ---- what to run ---- */

static bool is_wanted(const char *op) {
    for (int i = 0; i < n_only_ops; i++)
        if (strcmp(only_ops[i], op) == 0) return true;
    return n_only_ops == 0;
}

static void add_job(const struct check_row *row, check_fn *run, const struct kernel_table *tested, const char *tier,
                    const char *suffix) {
    if (!run || !is_wanted(row->op)) return;
    REQUIRE(n_jobs < MAX_JOBS);
    struct job *job = &jobs[n_jobs++];
    *job = (struct job){.row = row, .run = run, .tested = *tested};
    snprintf(job->name, sizeof job->name, "%s_%s%s", row->op, tier, suffix);
}

static void pointers_of(const struct kernel_table *table, any_fn *out[N_OPS], const char *out_tiers[N_OPS]) {
#define OP(op, type) out[OP_##op] = (any_fn *)table->op, out_tiers[OP_##op] = table->op##_tier;
#include "kernels/ops.inc"
#undef OP
}

static void mark_row(const char *op, const char *tier_name) {
    for (size_t i = 0; i < N_KERNEL_ROWS; i++)
        if (strcmp(kernel_rows[i].op, op) == 0 && strcmp(kernel_rows[i].tier_name, tier_name) == 0)
            kernel_rows[i].was_checked = true;
}

/* Checks of the kernels that this set of tiers brings. */
static void add_new_kernels(unsigned tiers, any_fn *seen[N_OPS]) {
    struct kernel_table table;
    any_fn *pointers[N_OPS];
    const char *tier_names[N_OPS];
    kernel_table_choose(&table, tiers);
    pointers_of(&table, pointers, tier_names);
    for (int op = 0; op < N_OPS; op++) {
        const struct check_row *row = check_find(op_names[op]);
        if (!row || pointers[op] == seen[op]) continue;
        if (!seen[op]) add_job(row, row->spec, &table, tier_names[op], "_spec");
        add_job(row, row->same, &table, tier_names[op], "");
        mark_row(op_names[op], tier_names[op]);
        seen[op] = pointers[op];
    }
}

static void plan(void) {
    any_fn *seen[N_OPS] = {NULL};
    unsigned detected = cpu_detect(), tiers = CPU_TIER_scalar;
    kernel_table_choose(&scalar_table, tiers);
    const struct check_row *exp_rows[] = {check_find("exp"), check_find("exp2")};
    for (int i = 0; i < 2; i++) add_job(exp_rows[i], exp_rows[i]->spec, &scalar_table, "scalar", "_spec");
    add_new_kernels(tiers, seen);
    for (int i = 0; i < cpu_n_tiers(); i++) {
        if (!(detected >> i & 1)) continue;
        tiers |= 1u << i;
        add_new_kernels(tiers, seen);
    }
}

/* ---- running ---- */

static void run_child(struct job *job) {
    struct rlimit limit = {CPU_LIMIT_S, CPU_LIMIT_S + 1};
    struct check check = {.op = job->row->op,
                          .dtype = job->row->dtype,
                          .scalar = &scalar_table,
                          .tested = &job->tested,
                          .gen = gen_start(seed, job->row->op),
                          .n_cases = &case_counts[job - jobs],
                          .is_slow = IS_SLOW};
    dup2(fileno(job->output), STDERR_FILENO);
    thread_set_float_state();
    REQUIRE(setrlimit(RLIMIT_CPU, &limit) == 0);
    alarm(TIME_LIMIT_S);
    job->run(&check);
    _exit(0);
}

static void start_job(struct job *job) {
    job->output = tmpfile();
    REQUIRE(job->output);
    fflush(stdout);
    job->pid = fork();
    REQUIRE(job->pid >= 0);
    if (job->pid == 0) run_child(job);
}

static void print_output(FILE *output) {
    char line[1024];
    rewind(output);
    while (fgets(line, sizeof line, output)) fputs(line, stdout);
    fclose(output);
}

static void finish_job(struct job *job, int status) {
    long n_cases = case_counts[job - jobs];
    bool is_good = WIFEXITED(status) && WEXITSTATUS(status) == 0 && n_cases > 0;
    printf("[ RUN      ] %s\n", job->name);
    print_output(job->output);
    if (WIFSIGNALED(status) && (WTERMSIG(status) == SIGALRM || WTERMSIG(status) == SIGXCPU))
        printf("%s: case %ld did not end in %d s\n", job->name, n_cases, CPU_LIMIT_S);
    else if (WIFSIGNALED(status))
        printf("%s: case %ld ended by %s\n", job->name, n_cases, strsignal(WTERMSIG(status)));
    else if (n_cases == 0)
        printf("%s: no case ran\n", job->name);
    printf("%ld cases\n%s %s\n", n_cases, is_good ? "[       OK ]" : "[  FAILED  ]", job->name);
    n_passed += is_good, n_failed += !is_good;
}

static void run_jobs(void) {
    int max_running = cpu_n_usable() < 2 ? 1 : 2, n_running = 0, next = 0;
    while (next < n_jobs || n_running > 0) {
        if (next < n_jobs && n_running < max_running) {
            start_job(&jobs[next++]);
            n_running++;
            continue;
        }
        int status;
        pid_t pid = waitpid(-1, &status, 0);
        if (pid < 0 && errno == EINTR) continue;
        REQUIRE(pid > 0);
        for (int i = 0; i < next; i++)
            if (jobs[i].pid == pid) finish_job(&jobs[i], status);
        n_running--;
    }
}

/* ---- rows that no check reached ---- */

static void print_outcome(const char *op, const char *tier, const char *why, bool is_failure) {
    printf("[ RUN      ] %s_%s\n%s\n%s %s_%s\n", op, tier, why, is_failure ? "[  FAILED  ]" : "[  SKIPPED ]", op, tier);
    n_failed += is_failure, n_skipped += !is_failure;
}

static int n_rows_left(void) {
    int n = 0;
    for (size_t i = 0; i < N_KERNEL_ROWS; i++) n += !kernel_rows[i].was_checked && is_wanted(kernel_rows[i].op);
    return n;
}

static void report_rows_left(void) {
    unsigned detected = cpu_detect();
    for (size_t i = 0; i < N_KERNEL_ROWS; i++) {
        const struct kernel_row *row = &kernel_rows[i];
        if (row->was_checked || !is_wanted(row->op)) continue;
        if (detected & row->tier)
            print_outcome(row->op, row->tier_name, "this machine can run it and no check did", true);
        else
            print_outcome(row->op, row->tier_name, "this CPU cannot run it", false);
    }
}

static int run_all(void) {
    case_counts = mmap(NULL, MAX_JOBS * sizeof *case_counts, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    REQUIRE(case_counts != MAP_FAILED);
    plan();
    printf("kernelcheck: --seed %llu\n", (unsigned long long)seed);
    printf("[==========] Running %d test(s).\n", n_jobs + n_rows_left());
    run_jobs();
    report_rows_left();
    printf("[==========] %d test(s) run.\n[  PASSED  ] %d test(s).\n", n_passed + n_failed, n_passed);
    if (n_skipped) printf("[  SKIPPED ] %d test(s)\n", n_skipped);
    if (n_failed) printf("[  FAILED  ] %d test(s)\n", n_failed);
    return n_failed || n_passed == 0;
}

static int usage(const char *what, const char *value) {
    fprintf(stderr, "kernelcheck: %s '%s'\nusage: kernelcheck [--seed N] [op...] | kernelcheck --bench [op]\n", what,
            value);
    return 2;
}

int main(int argc, char **argv) {
    int arg = 1;
    thread_set_float_state();
    if (arg < argc && strcmp(argv[arg], "--bench") == 0) {
        const char *op = argc > 2 ? argv[2] : NULL;
        return op && !check_find(op) ? usage("unknown operation", op) : bench_run(op);
    }
    if (arg < argc && strcmp(argv[arg], "--seed") == 0) {
        char *end;
        if (arg + 1 >= argc) return usage("a number is missing after", "--seed");
        seed = strtoull(argv[arg + 1], &end, 10);
        if (*end || end == argv[arg + 1]) return usage("--seed is no number:", argv[arg + 1]);
        arg += 2;
    }
    only_ops = argv + arg, n_only_ops = argc - arg;
    for (int i = 0; i < n_only_ops; i++)
        if (!check_find(only_ops[i])) return usage("unknown operation", only_ops[i]);
    return run_all();
}
