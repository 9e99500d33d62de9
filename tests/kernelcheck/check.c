#include "kernelcheck/check.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define GEMM(op, dtype)                                                                                                \
    { "gemm_" #op, gemm_check_spec, gemm_check_same, DTYPE_##dtype }
#define FOLD(op, dtype)                                                                                                \
    { "attention_" #op, fold_check_spec, fold_check_same, DTYPE_##dtype }

static const struct check_row rows[] = {
    GEMM(f32, F32),
    GEMM(f16, F16),
    GEMM(bf16, BF16),
    GEMM(q4_0, Q4_0),
    GEMM(q4_1, Q4_1),
    GEMM(q5_0, Q5_0),
    GEMM(q5_1, Q5_1),
    GEMM(q8_0, Q8_0),
    GEMM(q4_k, Q4_K),
    GEMM(q5_k, Q5_K),
    GEMM(q6_k, Q6_K),
    GEMM(q2_k, Q2_K),
    GEMM(wide_32, IQ4_XS),
    GEMM(wide_16, IQ2_S),
    {"quantize_q8", quantize_check_spec, quantize_check_same, DTYPE_F32},
    {"quantize_q16", quantize_check_spec, quantize_check_same, DTYPE_F32},
    {"rms_norm", rows_check_norm_spec, rows_check_norm_same, DTYPE_F32},
    {"gate_silu", rows_check_gate_spec, rows_check_gate_same, DTYPE_F32},
    {"gate_gelu", rows_check_gate_spec, rows_check_gate_same, DTYPE_F32},
    {"add", rows_check_add_spec, rows_check_add_same, DTYPE_F32},
    {"softmax_weights", rows_check_weights_spec, rows_check_weights_same, DTYPE_F32},
    {"rope_pairs", rows_check_rope_spec, rows_check_rope_same, DTYPE_F32},
    {"rope_halves", rows_check_rope_spec, rows_check_rope_same, DTYPE_F32},
    FOLD(rows_f32, F32),
    FOLD(rows_f16, F16),
    FOLD(keys_f32, F32),
    FOLD(keys_f16, F16),
    FOLD(rows_i8, I8),
    FOLD(keys_i8, I8),
    FOLD(rows_q8_0, Q8_0),
    FOLD(keys_q8_0, Q8_0),
    {"attention_merge", state_check_merge_spec, state_check_merge_same, DTYPE_F32},
    {"attention_finish", state_check_finish_spec, state_check_finish_same, DTYPE_F32},
    {"kv_store_f32", state_check_kv_spec, state_check_kv_same, DTYPE_F32},
    {"kv_store_f16", state_check_kv_spec, state_check_kv_same, DTYPE_F16},
    {"kv_store_i8", state_check_kv_i8_spec, state_check_kv_same, DTYPE_I8},
    {"kv_store_q8_0", state_check_kv_q8_0_spec, state_check_kv_same, DTYPE_Q8_0},
    {"hadamard", state_check_hadamard_spec, state_check_hadamard_same, DTYPE_F32},
    {"peak_dots", peak_check_spec, peak_check_spec, DTYPE_F32},
    {"exp", rows_check_exp_spec, NULL, DTYPE_F32}, /* no kernel, but part of the specification */
    {"exp2", rows_check_exp2_spec, NULL, DTYPE_F32},
};

const struct check_row *check_find(const char *op) {
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (strcmp(rows[i].op, op) == 0) return &rows[i];
    return NULL;
}

_Noreturn void check_fail(const struct check *check, const char *fmt, ...) {
    char text[512];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    fprintf(stderr, "%s: case %ld: %s\n", check->op, *check->n_cases, text);
    fflush(stderr);
    _exit(1);
}

static uint32_t bits_of(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static bool is_same(float a, float b, enum check_zeros zeros) {
    uint32_t x = bits_of(a), y = bits_of(b);
    if (x == y) return true;
    if (isnan(a) && isnan(b)) return x != GUARD_CANARY_F32 && y != GUARD_CANARY_F32;
    return zeros == CHECK_ZEROS_EQUAL && a == 0 && b == 0;
}

long check_first_difference(const float *expected, const float *got, size_t n, enum check_zeros zeros) {
    if (memcmp(expected, got, n * sizeof *got) == 0) return -1;
    for (size_t i = 0; i < n; i++)
        if (!is_same(expected[i], got[i], zeros)) return (long)i;
    return -1;
}

void check_equal(const struct check *check, const float *expected, const float *got, size_t n, const char *fmt, ...) {
    long i = check_first_difference(expected, got, n, CHECK_ZEROS_DIFFER);
    if (i < 0) return;
    char where[256];
    va_list args;
    va_start(args, fmt);
    vsnprintf(where, sizeof where, fmt, args);
    va_end(args);
    check_fail(check, "%s: element %ld of %zu is %a, should be %a", where, i, n, (double)got[i], (double)expected[i]);
}

void check_near(const struct check *check, double want, float got, double bound, const char *what, long idx) {
    if (fabs(want) + bound > 3.4e38) return;
    double error = fabs((double)got - want);
    if (!(error <= bound))
        check_fail(check, "%s %ld is %a, should be %a: off by %g, bound %g", what, idx, (double)got, want, error,
                   bound);
}

void check_intact(const struct check *check, const struct guard *guard, const void *output, size_t n_bytes,
                  const char *what) {
    if (!guard_is_intact(guard, output, n_bytes)) check_fail(check, "%s: a byte outside the output was written", what);
}
