#include "base/cpu.h"

#include <errno.h>
#include <sched.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#if defined(__x86_64__)
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#endif

#include "support/test.h"

static unsigned all_tiers(void) {
    return (1u << cpu_n_tiers()) - 1;
}

static void what_is_detected_is_known_and_holds_scalar(void **state) {
    (void)state;
    unsigned tiers = cpu_detect();
    assert_true(tiers & CPU_TIER_scalar);
    assert_int_equal(tiers & ~all_tiers(), 0);
    /* avxvnni and avx512vnni are built with avx2's instructions, amx with avx512vnni's, i8mm with dotprod's */
    if (tiers & (CPU_TIER_avxvnni | CPU_TIER_avx512vnni)) assert_true(tiers & CPU_TIER_avx2);
    if (tiers & CPU_TIER_amx) assert_true(tiers & CPU_TIER_avx512vnni);
    if (tiers & CPU_TIER_i8mm) assert_true(tiers & CPU_TIER_dotprod);
#if defined(__x86_64__)
    assert_int_equal(tiers & (CPU_TIER_neon | CPU_TIER_dotprod | CPU_TIER_i8mm), 0);
#else
    assert_int_equal(tiers & (CPU_TIER_avx2 | CPU_TIER_avxvnni | CPU_TIER_avx512vnni | CPU_TIER_amx), 0);
#endif
}

static void a_mask_keeps_its_tier_and_what_is_below(void **state) {
    (void)state;
    for (int i = 0; i < cpu_n_tiers(); i++) {
        unsigned tiers = 0;
        assert_int_equal(cpu_mask(all_tiers(), cpu_tier_name(i), &tiers, NULL), STATUS_OK);
        assert_int_equal(tiers, (2u << i) - 1);
        /* gaps stay gaps */
        unsigned some = (1u << i) | CPU_TIER_scalar;
        assert_int_equal(cpu_mask(some, cpu_tier_name(i), &tiers, NULL), STATUS_OK);
        assert_int_equal(tiers, some);
    }
    unsigned tiers = 0;
    assert_int_equal(cpu_mask(cpu_detect(), "scalar", &tiers, NULL), STATUS_OK);
    assert_int_equal(tiers, CPU_TIER_scalar);
}

static void an_unknown_tier_is_refused_with_the_known_ones(void **state) {
    (void)state;
    static const char *const names[] = {"", "avx", "avx22", "AVX2", "scalar ", "avx512vnn", "sse4"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        struct status_note note = {0};
        unsigned tiers = 0xabc;
        assert_int_equal(cpu_mask(all_tiers(), names[i], &tiers, &note), STATUS_INVALID);
        assert_int_equal(tiers, 0xabc);
        char quoted[64];
        snprintf(quoted, sizeof quoted, "'%s'", names[i]);
        assert_non_null(strstr(note.text, quoted));
        assert_non_null(strstr(note.text, "unknown"));
        for (int t = 0; t < cpu_n_tiers(); t++) assert_non_null(strstr(note.text, cpu_tier_name(t)));
    }
}

static void a_tier_that_this_cpu_lacks_is_refused_by_name(void **state) {
    (void)state;
    for (int i = 1; i < cpu_n_tiers(); i++) {
        struct status_note note = {0};
        unsigned tiers = 0xabc;
        assert_int_equal(cpu_mask(all_tiers() & ~(1u << i), cpu_tier_name(i), &tiers, &note), STATUS_INVALID);
        assert_int_equal(tiers, 0xabc);
        assert_non_null(strstr(note.text, cpu_tier_name(i)));
        assert_null(strstr(note.text, "unknown"));
    }
}

static void names_and_texts_are_there(void **state) {
    (void)state;
    for (int i = 0; i < cpu_n_tiers(); i++) {
        assert_true(cpu_tier_name(i)[0] && cpu_tier_text(i)[0]);
        for (int j = 0; j < i; j++) assert_string_not_equal(cpu_tier_name(i), cpu_tier_name(j));
    }
}

/* Service managers may forbid the call that asks for the tile registers. */
static void amx_is_left_out_where_linux_refuses_tiles(void **state) {
    (void)state;
#if defined(__x86_64__)
    if (!(cpu_detect() & CPU_TIER_amx)) {
        print_message("skipped: this CPU has no AMX, or Linux does not give it\n");
        skip();
    }
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        struct sock_filter refuse[] = {
            BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
            BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_arch_prctl, 0, 1),
            BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
            BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        };
        struct sock_fprog program = {sizeof refuse / sizeof refuse[0], refuse};
        if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program)) _exit(2);
        unsigned tiers = cpu_detect();
        _exit((tiers & CPU_TIER_amx) || !(tiers & CPU_TIER_avx512vnni));
    }
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
#else
    skip();
#endif
}

static void usable_cpus_follow_the_affinity_mask(void **state) {
    (void)state;
    cpu_set_t all, one;
    assert_int_equal(sched_getaffinity(0, sizeof all, &all), 0);
    int n = cpu_n_usable();
    assert_true(n >= 1 && n <= CPU_COUNT(&all));
    int first = 0;
    while (!CPU_ISSET(first, &all)) first++;
    CPU_ZERO(&one);
    CPU_SET(first, &one);
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
    int n_of_one = cpu_n_usable();
    assert_int_equal(sched_setaffinity(0, sizeof all, &all), 0);
    assert_int_equal(n_of_one, 1);
    assert_int_equal(cpu_n_usable(), n);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_detected_is_known_and_holds_scalar),
        cmocka_unit_test(a_mask_keeps_its_tier_and_what_is_below),
        cmocka_unit_test(an_unknown_tier_is_refused_with_the_known_ones),
        cmocka_unit_test(a_tier_that_this_cpu_lacks_is_refused_by_name),
        cmocka_unit_test(names_and_texts_are_there),
        cmocka_unit_test(amx_is_left_out_where_linux_refuses_tiles),
        cmocka_unit_test(usable_cpus_follow_the_affinity_mask),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
