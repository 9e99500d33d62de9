#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "kernelcheck/check.h"
#include "kernels/scalar/exp2_scalar.h"
#include "kernels/scalar/exp_scalar.h"

#define U 0x1p-24 /* half a unit in the last place of 1 */
#define MAX_FLOATS 20000

static enum gen_kind any_kind(struct check *check) {
    return (enum gen_kind)gen_below(&check->gen, GEN_N_KINDS);
}

static enum guard_place any_place(struct check *check) {
    return (enum guard_place)gen_below(&check->gen, GUARD_N_PLACES);
}

/* Counts 1..70, then larger ones with and without tails. */
static int nth_count(int i) {
    static const int large[] = {100, 127, 128, 129, 255, 256, 257, 576, 1000, 1536, 2048, 4095, 4097};
    int n_large = (int)(sizeof large / sizeof *large);
    return i < 70 ? i + 1 : i < 70 + n_large ? large[i - 70] : 0;
}

/* ---- exp ---- */

/* Every 199th float of the range: all exponents and most mantissa patterns. */
void rows_check_exp_spec(struct check *check) {
    uint32_t step = check->is_slow ? 9973 : 199;
    for (uint32_t bits = 0; bits <= 0x42b20000; bits += step) /* 89 */
        for (int sign = 0; sign < 2; sign++) {
            uint32_t signed_bits = bits | (uint32_t)sign << 31;
            float x;
            memcpy(&x, &signed_bits, sizeof x);
            double want = x < EXP_MIN ? 0 : exp(x > EXP_MAX ? (double)EXP_MAX : (double)x);
            check_near(check, want, exp_scalar(x), want * 0x1p-22, "exp of float with bits", (long)signed_bits);
            ++*check->n_cases;
        }
    static const float far[] = {-1e30f, -3e38f, -88.0f, -87.0001f};
    for (size_t i = 0; i < sizeof far / sizeof *far; i++)
        if (exp_scalar(far[i]) != 0 || signbit(exp_scalar(far[i])))
            check_fail(check, "exp(%g) is not +0", (double)far[i]);
    if (exp_scalar(-0.0f) != 1 || exp_scalar(0.0f) != 1) check_fail(check, "exp(0) is not 1");
}

void rows_check_exp2_spec(struct check *check) {
    uint32_t step = check->is_slow ? 9973 : 199;
    for (uint32_t bits = 0x80000000u; bits <= 0xc2f00000u; bits += step) { /* -0 to -120 */
        float x;
        memcpy(&x, &bits, sizeof x);
        double want = exp2(fmax((double)x, (double)EXP2_MIN));
        check_near(check, want, exp2_scalar(x), want * 1.1e-4, "exp2 of float with bits", (long)bits);
        ++*check->n_cases;
    }
    if (exp2_scalar(-0.0f) != 1 || exp2_scalar(0.0f) != 1) check_fail(check, "exp2(0) is not 1");
    if (exp2_scalar(-INFINITY) != 0x1p-100f || exp2_scalar(-1e30f) != 0x1p-100f) check_fail(check, "no floor");
}

/* ---- rms_norm ---- */

void rows_check_norm_spec(struct check *check) {
    static float x[MAX_FLOATS], weight[MAX_FLOATS], out[MAX_FLOATS];
    static const enum gen_kind kinds[] = {GEN_NORMAL, GEN_MAX, GEN_MIXED, GEN_SPARSE, GEN_ZERO};
    for (int i = 0; nth_count(i); i++)
        for (int kind = 0; kind < 5; kind++) {
            int n = nth_count(i);
            double sum = 0;
            gen_floats(&check->gen, kinds[kind], x, (size_t)n);
            gen_floats(&check->gen, GEN_NORMAL, weight, (size_t)n);
            check->scalar->rms_norm(x, weight, 1e-5f, out, 1, n);
            for (int j = 0; j < n; j++) sum += (double)x[j] * (double)x[j];
            double scale = 1 / sqrt(sum / n + (double)1e-5f);
            for (int j = 0; j < n; j++) { /* per lane n / 16 fma, 4 additions, then 7 operations */
                double want = (double)x[j] * scale * (double)weight[j];
                check_near(check, want, out[j], fabs(want) * U * (n / 16 + 12) + 0x1p-149, "value", j);
            }
            ++*check->n_cases;
        }
}

static void norm_call(struct check *check, const struct guard guards[3], int n_rows, int n, bool is_in_place) {
    static float x[MAX_FLOATS], weight[MAX_FLOATS], expected[MAX_FLOATS];
    static const float eps[] = {1e-5f, 1e-6f, 0.0f};
    float e = eps[gen_below(&check->gen, 3)];
    size_t n_all = (size_t)(n_rows * n), n_bytes = n_all * sizeof *x;
    for (int row = 0; row < n_rows; row++) gen_floats(&check->gen, any_kind(check), x + row * n, (size_t)n);
    gen_floats(&check->gen, any_kind(check), weight, (size_t)n);
    check->scalar->rms_norm(x, weight, e, expected, n_rows, n);
    float *out = guard_place_output(&guards[2], n_bytes, any_place(check));
    const float *in = out;
    if (is_in_place)
        memcpy(out, x, n_bytes);
    else
        in = guard_copy(&guards[0], x, n_bytes, any_place(check));
    const float *w = guard_copy(&guards[1], weight, (size_t)n * sizeof *w, any_place(check));
    check->tested->rms_norm(in, w, e, out, n_rows, n);
    ++*check->n_cases;
    check_equal(check, expected, out, n_all, "%d rows of %d", n_rows, n);
    check_intact(check, &guards[2], out, n_bytes, "out");
}

void rows_check_norm_same(struct check *check) {
    struct guard guards[3];
    for (int i = 0; i < 3; i++) guard_init(&guards[i], MAX_FLOATS * sizeof(float));
    for (int round = 0; round < (check->is_slow ? 2 : 20); round++)
        for (int i = 0; nth_count(i); i++)
            norm_call(check, guards, gen_between(&check->gen, 1, 4), nth_count(i), round % 2);
}

/* ---- gates ---- */

static gate_fn *gate_of(const struct check *check, const struct kernel_table *table) {
    return strcmp(check->op, "gate_silu") == 0 ? table->gate_silu : table->gate_gelu;
}

static void check_gate(const struct check *check, float x, float up, float got) {
    double wide = (double)x, arg = wide;
    if (strcmp(check->op, "gate_gelu") == 0)
        arg = 2 * sqrt(2 / 3.14159265358979323846) * (wide + 0.044715 * wide * wide * wide);
    double want = wide / (1 + exp(-arg)) * (double)up;
    /* exp's own error, four roundings, and those of the argument (5 of them, of which silu has none) times itself;
     * where exp stops at e^88 the result is below x up e^-88. */
    double bound =
        fabs(want) * U * (10 + 8 * (arg == wide ? 0 : fabs(arg))) + fabs(wide * (double)up) * 7e-39 + 0x1p-148;
    check_near(check, want, got, bound, "gate bits", (long)(x * 1000));
}

void rows_check_gate_spec(struct check *check) {
    for (int i = 0; i < (check->is_slow ? 2000 : 200000); i++) {
        float x = gen_float(&check->gen, i % 2 ? GEN_MIXED : GEN_NORMAL) * (i % 3 ? 10.0f : 1.0f), gate = x;
        float up = gen_float(&check->gen, GEN_NORMAL);
        gate_of(check, check->scalar)(&gate, &up, 1);
        check_gate(check, x, up, gate);
        ++*check->n_cases;
    }
}

typedef void pair_fn(struct check *check, const struct kernel_table *table, float *x, const float *y, int64_t n);

static void call_gate(struct check *check, const struct kernel_table *table, float *x, const float *y, int64_t n) {
    gate_of(check, table)(x, y, n);
}

static void call_add(struct check *check, const struct kernel_table *table, float *x, const float *y, int64_t n) {
    (void)check;
    table->add(x, y, n);
}

/* x = op(x, y) of n elements. */
static void pairs_same(struct check *check, pair_fn *call) {
    static float x[MAX_FLOATS], y[MAX_FLOATS], start[MAX_FLOATS];
    struct guard guards[2];
    for (int i = 0; i < 2; i++) guard_init(&guards[i], MAX_FLOATS * sizeof(float));
    for (int round = 0; round < (check->is_slow ? 2 : 40); round++)
        for (int i = 0; nth_count(i); i++) {
            size_t n = (size_t)nth_count(i), n_bytes = n * sizeof *x;
            gen_floats(&check->gen, round % 3 ? any_kind(check) : GEN_NORMAL, start, n);
            for (size_t j = 0; round % 4 == 1 && j < n; j++) start[j] *= 40.0f; /* exp's ends */
            gen_floats(&check->gen, any_kind(check), y, n);
            memcpy(x, start, n_bytes);
            call(check, check->scalar, x, y, (int64_t)n);
            float *got = guard_place_output(&guards[0], n_bytes, any_place(check));
            memcpy(got, start, n_bytes);
            call(check, check->tested, got, guard_copy(&guards[1], y, n_bytes, any_place(check)), (int64_t)n);
            ++*check->n_cases;
            check_equal(check, x, got, n, "round %d, %zu elements", round, n);
            check_intact(check, &guards[0], got, n_bytes, "x");
        }
}

void rows_check_gate_same(struct check *check) {
    pairs_same(check, call_gate);
}

/* ---- add ---- */

void rows_check_add_same(struct check *check) {
    pairs_same(check, call_add);
}

void rows_check_add_spec(struct check *check) {
    for (int i = 0; i < 100000; i++) {
        float x = gen_float(&check->gen, any_kind(check)), y = gen_float(&check->gen, any_kind(check)), got = x;
        check->scalar->add(&got, &y, 1);
        float want = (float)((double)x + (double)y); /* double has more than 2 x 24 + 2 bits: rounded twice is once */
        check_equal(check, &want, &got, 1, "%a + %a", (double)x, (double)y);
        ++*check->n_cases;
    }
}

/* ---- softmax_weights ---- */

/* Logits below their maximum, and what no model should give. */
static void random_logits(struct check *check, float *x, size_t n, float *out_shift) {
    gen_floats(&check->gen, gen_below(&check->gen, 4) ? GEN_NORMAL : any_kind(check), x, n);
    float scale = (float)gen_between(&check->gen, 1, 40);
    *out_shift = -INFINITY;
    for (size_t i = 0; i < n; i++) {
        x[i] *= scale;
        if (gen_below(&check->gen, 500) == 0) x[i] = gen_below(&check->gen, 2) ? -INFINITY : NAN;
        if (x[i] > *out_shift) *out_shift = x[i];
    }
}

static const float divisors[] = {1, 0.7f, 2, 0.001f, 100};

void rows_check_weights_spec(struct check *check) {
    static float x[MAX_FLOATS], out[MAX_FLOATS];
    for (int i = 0; nth_count(i); i++)
        for (int d = 0; d < 5; d++) {
            float shift;
            random_logits(check, x, (size_t)nth_count(i), &shift);
            check->scalar->softmax_weights(x, shift, divisors[d], out, nth_count(i));
            for (int j = 0; j < nth_count(i); j++) {
                double arg = ((double)x[j] - (double)shift) / (double)divisors[d], want = exp(arg);
                /* exp's own error, and two roundings of its argument; below EXP_MIN it gives 0 */
                double bound = isfinite(arg) ? want * (0x1p-22 + 3 * U * fabs(arg)) + 1.7e-38 : 0;
                check_near(check, isnan(arg) ? 0 : want, out[j], bound, "weight of id", j);
            }
            ++*check->n_cases;
        }
}

void rows_check_weights_same(struct check *check) {
    static float x[MAX_FLOATS], expected[MAX_FLOATS];
    struct guard guards[2];
    for (int i = 0; i < 2; i++) guard_init(&guards[i], MAX_FLOATS * sizeof(float));
    for (int round = 0; round < (check->is_slow ? 2 : 40); round++)
        for (int i = 0; nth_count(i); i++) {
            size_t n = (size_t)nth_count(i), n_bytes = n * sizeof *x;
            float shift, divisor = divisors[round % 5];
            random_logits(check, x, n, &shift);
            check->scalar->softmax_weights(x, shift, divisor, expected, (int64_t)n);
            float *out = guard_place_output(&guards[0], n_bytes, any_place(check));
            const float *in = guard_copy(&guards[1], x, n_bytes, any_place(check));
            check->tested->softmax_weights(in, shift, divisor, out, (int64_t)n);
            ++*check->n_cases;
            check_equal(check, expected, out, n, "round %d, %zu elements", round, n);
            check_intact(check, &guards[0], out, n_bytes, "out");
        }
}

/* ---- rope ---- */

static rope_fn *rope_of(const struct check *check, const struct kernel_table *table) {
    return strcmp(check->op, "rope_pairs") == 0 ? table->rope_pairs : table->rope_halves;
}

static void random_angles(struct check *check, float *angles, int n_pairs) {
    for (int i = 0; i < n_pairs; i++) {
        double angle = (double)gen_between(&check->gen, 0, 100000) * 0.001 * gen_between(&check->gen, 0, 100);
        angles[2 * i] = (float)cos(angle);
        angles[2 * i + 1] = (float)sin(angle);
    }
}

void rows_check_rope_spec(struct check *check) {
    float x[512], old[512], angles[512];
    bool is_pairs = strcmp(check->op, "rope_pairs") == 0;
    for (int n_pairs = 1; n_pairs <= 128; n_pairs++)
        for (int kind = 0; kind < GEN_HUGE; kind++) {
            random_angles(check, angles, n_pairs);
            gen_floats(&check->gen, (enum gen_kind)kind, old, (size_t)(2 * n_pairs));
            memcpy(x, old, sizeof x);
            rope_of(check, check->scalar)(x, angles, 1, 2 * n_pairs, n_pairs);
            for (int i = 0; i < n_pairs; i++) {
                int at = is_pairs ? 2 * i : i, to = is_pairs ? 2 * i + 1 : i + n_pairs;
                double a = (double)old[at], b = (double)old[to], c = (double)angles[2 * i],
                       s = (double)angles[2 * i + 1];
                double bound = 2 * U * (fabs(a) + fabs(b)) + 0x1p-148;
                check_near(check, a * c - b * s, x[at], bound, "first of pair", i);
                check_near(check, a * s + b * c, x[to], bound, "second of pair", i);
            }
            ++*check->n_cases;
        }
}

static void rope_call(struct check *check, const struct guard guards[2], int n_heads, int n_pairs, int gap) {
    static float expected[MAX_FLOATS], angles[2 * 256];
    int stride = 2 * n_pairs + gap;
    size_t n = (size_t)((n_heads - 1) * stride + 2 * n_pairs), n_bytes = n * sizeof(float);
    float *got = guard_place_output(&guards[0], n_bytes, any_place(check));
    guard_paint(expected, n_bytes);
    for (int head = 0; head < n_heads; head++)
        gen_floats(&check->gen, any_kind(check), expected + head * stride, (size_t)(2 * n_pairs));
    for (int head = 0; head < n_heads; head++)
        memcpy(got + head * stride, expected + head * stride, (size_t)(2 * n_pairs) * sizeof(float));
    if (gen_below(&check->gen, 4))
        random_angles(check, angles, n_pairs);
    else
        gen_floats(&check->gen, any_kind(check), angles, (size_t)(2 * n_pairs));
    const float *placed = guard_copy(&guards[1], angles, (size_t)(2 * n_pairs) * sizeof(float), any_place(check));
    rope_of(check, check->scalar)(expected, angles, n_heads, stride, n_pairs);
    rope_of(check, check->tested)(got, placed, n_heads, stride, n_pairs);
    ++*check->n_cases;
    for (int head = 0; head < n_heads; head++) {
        check_equal(check, expected + head * stride, got + head * stride, (size_t)(2 * n_pairs),
                    "%d heads, %d pairs, stride %d, head %d", n_heads, n_pairs, stride, head);
        if (head + 1 < n_heads && !guard_is_painted(got + head * stride + 2 * n_pairs, (size_t)gap * sizeof(float)))
            check_fail(check, "%d pairs, stride %d: written between heads", n_pairs, stride);
    }
    check_intact(check, &guards[0], got, n_bytes, "x");
}

void rows_check_rope_same(struct check *check) {
    static const int gaps[] = {0, 1, 2, 16, 32};
    struct guard guards[2];
    for (int i = 0; i < 2; i++) guard_init(&guards[i], MAX_FLOATS * sizeof(float));
    for (int round = 0; round < (check->is_slow ? 1 : 20); round++)
        for (int n_pairs = 1; n_pairs <= 130; n_pairs += n_pairs < 70 ? 1 : 5)
            rope_call(check, guards, gen_between(&check->gen, 1, 6), n_pairs, gaps[gen_below(&check->gen, 5)]);
}
