#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernelcheck/check.h"
#include "kernels/kv_i8.h"
#include "kernels/kv_q8_0.h"
#include "kernels/scalar/exp_scalar.h"

#define MAX_ROWS ATTENTION_MAX_ROWS
#define MAX_DIM ATTENTION_MAX_HEAD_DIM
#define U 0x1p-24

static enum guard_place any_place(struct check *check) {
    return (enum guard_place)gen_below(&check->gen, GUARD_N_PLACES);
}

struct state_floats {
    float max[MAX_ROWS], denom[MAX_ROWS], o[MAX_ROWS * MAX_DIM];
};

static struct attention_state state_of(struct state_floats *floats) {
    return (struct attention_state){floats->max, floats->denom, floats->o};
}

/* Some rows have seen no key. */
static void random_state(struct check *check, struct state_floats *out, int head_dim, enum gen_kind kind) {
    for (int r = 0; r < MAX_ROWS; r++) {
        bool is_empty = gen_below(&check->gen, 4) == 0;
        float spread = gen_below(&check->gen, 3) ? 4.0f : 100.0f;
        out->max[r] = is_empty ? ATTENTION_MASKED : gen_float(&check->gen, GEN_NORMAL) * spread;
        out->denom[r] = is_empty ? 0.0f : 1.0f + fabsf(gen_float(&check->gen, GEN_NORMAL)) * 60.0f;
        for (int d = 0; d < head_dim; d++) out->o[r * head_dim + d] = is_empty ? 0.0f : gen_float(&check->gen, kind);
    }
}

/* ---- merge ---- */

void state_check_merge_spec(struct check *check) {
    static struct state_floats a, b, into;
    for (int round = 0; round < 300; round++) {
        int head_dim = 16 * gen_between(&check->gen, 1, 16);
        random_state(check, &a, head_dim, GEN_NORMAL);
        random_state(check, &b, head_dim, GEN_NORMAL);
        into = a;
        struct attention_state to = state_of(&into), part = state_of(&b);
        check->scalar->attention_merge(&to, &part, MAX_ROWS, head_dim);
        for (int r = 0; r < MAX_ROWS; r++) {
            double max = fmax((double)a.max[r], (double)b.max[r]);
            double x = exp((double)a.max[r] - max), y = exp((double)b.max[r] - max);
            /* the difference of the maxima is rounded, exp is off by 2^-22, three roundings; exp below -87 is 0 */
            double rel = U * (8 + fmin(200, fabs((double)a.max[r] - (double)b.max[r]))), floor = 2e-36;
            if ((double)into.max[r] != max) check_fail(check, "max of row %d", r);
            double denom = (double)a.denom[r] * x + (double)b.denom[r] * y;
            check_near(check, denom, into.denom[r], denom * rel + floor, "denom", r);
            for (int i = r * head_dim; i < (r + 1) * head_dim; i++) {
                double p = (double)a.o[i] * x, q = (double)b.o[i] * y;
                check_near(check, p + q, into.o[i], (fabs(p) + fabs(q)) * rel + floor, "o", i);
            }
        }
        ++*check->n_cases;
    }
}

static void merge_call(struct check *check, const struct guard guards[6], int n_rows, int head_dim,
                       enum gen_kind kind) {
    static struct state_floats a, b, expected;
    random_state(check, &a, head_dim, kind);
    random_state(check, &b, head_dim, kind);
    size_t row_bytes = (size_t)n_rows * sizeof(float), o_bytes = row_bytes * (size_t)head_dim;
    struct attention_state into = {guard_place_output(&guards[0], row_bytes, any_place(check)),
                                   guard_place_output(&guards[1], row_bytes, any_place(check)),
                                   guard_place_output(&guards[2], o_bytes, any_place(check))};
    memcpy(into.max, a.max, row_bytes);
    memcpy(into.denom, a.denom, row_bytes);
    memcpy(into.o, a.o, o_bytes);
    struct attention_state part = {guard_copy(&guards[3], b.max, row_bytes, any_place(check)),
                                   guard_copy(&guards[4], b.denom, row_bytes, any_place(check)),
                                   guard_copy(&guards[5], b.o, o_bytes, any_place(check))};
    expected = a;
    struct attention_state want = state_of(&expected), plain = state_of(&b);
    check->scalar->attention_merge(&want, &plain, n_rows, head_dim);
    check->tested->attention_merge(&into, &part, n_rows, head_dim);
    ++*check->n_cases;
    check_equal(check, want.max, into.max, (size_t)n_rows, "max, %d rows", n_rows);
    check_equal(check, want.denom, into.denom, (size_t)n_rows, "denom, %d rows", n_rows);
    check_equal(check, want.o, into.o, (size_t)(n_rows * head_dim), "o, %d rows of %d", n_rows, head_dim);
    check_intact(check, &guards[0], into.max, row_bytes, "max");
    check_intact(check, &guards[1], into.denom, row_bytes, "denom");
    check_intact(check, &guards[2], into.o, o_bytes, "o");
}

void state_check_merge_same(struct check *check) {
    struct guard guards[6];
    for (int i = 0; i < 6; i++) guard_init(&guards[i], MAX_ROWS * MAX_DIM * sizeof(float));
    for (int round = 0; round < (check->is_slow ? 1 : 5); round++)
        for (int n_rows = 1; n_rows <= MAX_ROWS; n_rows++)
            for (int head_dim = 16; head_dim <= MAX_DIM; head_dim += 16)
                merge_call(check, guards, n_rows, head_dim,
                           round % 2 ? (enum gen_kind)gen_below(&check->gen, GEN_N_KINDS) : GEN_NORMAL);
}

/* ---- finish ---- */

void state_check_finish_spec(struct check *check) {
    float o[16], out[16];
    for (int round = 0; round < 5000; round++) {
        gen_floats(&check->gen, (enum gen_kind)gen_below(&check->gen, GEN_N_KINDS), o, 16);
        float denom = 1.0f + fabsf(gen_float(&check->gen, GEN_NORMAL)) * 1000.0f;
        check->scalar->attention_finish(o, denom, out, 16);
        for (int i = 0; i < 16; i++) {
            double want = (double)o[i] / (double)denom;
            check_near(check, want, out[i], fabs(want) * U + 0x1p-150, "value", i);
            if (out[i] == 0 && signbit(out[i])) check_fail(check, "%a / %a is -0", (double)o[i], (double)denom);
        }
        ++*check->n_cases;
    }
}

void state_check_finish_same(struct check *check) {
    static float o[MAX_DIM], expected[MAX_DIM];
    struct guard guards[2];
    for (int i = 0; i < 2; i++) guard_init(&guards[i], sizeof o);
    for (int round = 0; round < (check->is_slow ? 10 : 500); round++)
        for (int head_dim = 16; head_dim <= MAX_DIM; head_dim += 16) {
            size_t n_bytes = (size_t)head_dim * sizeof *o;
            gen_floats(&check->gen, (enum gen_kind)gen_below(&check->gen, GEN_N_KINDS), o, (size_t)head_dim);
            float denom = fabsf(gen_float(&check->gen, (enum gen_kind)gen_below(&check->gen, GEN_N_KINDS)));
            check->scalar->attention_finish(o, denom, expected, head_dim);
            float *out = guard_place_output(&guards[1], n_bytes, any_place(check));
            check->tested->attention_finish(guard_copy(&guards[0], o, n_bytes, any_place(check)), denom, out, head_dim);
            ++*check->n_cases;
            check_equal(check, expected, out, (size_t)head_dim, "head_dim %d, denom %a", head_dim, (double)denom);
            check_intact(check, &guards[1], out, n_bytes, "out");
        }
}

/* ---- kv_store ---- */

static kv_store_fn *store_of(const struct check *check, const struct kernel_table *table) {
    switch (check->dtype) {
    case DTYPE_F16: return table->kv_store_f16;
    case DTYPE_I8: return table->kv_store_i8;
    case DTYPE_Q8_0: return table->kv_store_q8_0;
    default: return table->kv_store_f32;
    }
}

static size_t item_bytes(const struct check *check) {
    return (size_t)dtype_block_bytes(check->dtype);
}

/* Values of every kind; f16 gets the edges of its rounding and saturation too. */
static void random_kv(struct check *check, float *out, int n) {
    static const float edges[] = {65503.9f, 65504.0f,   65519.9f,       65520.0f,      1e6f,  INFINITY,
                                  6.1e-5f,  5.97e-8f,   2.98e-8f,       2.99e-8f,      1e-9f, 0x1p-14f,
                                  0x1p-24f, 0x1.8p-24f, 1.00048828125f, 1.00146484375f};
    for (int i = 0; i < n; i++) {
        float value = gen_float(&check->gen, (enum gen_kind)gen_below(&check->gen, GEN_N_KINDS));
        if (gen_below(&check->gen, 4) == 0) value = copysignf(edges[gen_below(&check->gen, 16)], value);
        out[i] = value;
    }
}

void state_check_kv_spec(struct check *check) {
    static float k[MAX_DIM], v[MAX_DIM];
    static _Alignas(64) uint8_t k_block[64 * MAX_DIM * 4], v_block[64 * MAX_DIM * 4];
    size_t item = item_bytes(check);
    for (int block_tokens = 16; block_tokens <= 64; block_tokens *= 2)
        for (int slot = 0; slot < block_tokens; slot++) {
            int head_dim = 16 * gen_between(&check->gen, 1, 16);
            random_kv(check, k, head_dim);
            random_kv(check, v, head_dim);
            store_of(check, check->scalar)(k, v, k_block, v_block, slot, block_tokens, head_dim);
            for (int d = 0; d < head_dim; d++) {
                uint8_t want[2][4];
                const float *from[2] = {&k[d], &v[d]};
                for (int i = 0; i < 2; i++) {
                    uint16_t half = dtype_f32_to_f16(*from[i]);
                    memcpy(want[i], item == 2 ? (const void *)&half : (const void *)from[i], item);
                }
                if (memcmp(k_block + (size_t)(d * block_tokens + slot) * item, want[0], item) != 0 ||
                    memcmp(v_block + (size_t)(slot * head_dim + d) * item, want[1], item) != 0)
                    check_fail(check, "slot %d of %d, dim %d of %d", slot, block_tokens, d, head_dim);
            }
            ++*check->n_cases;
        }
}

/* Kinds of finite values, one a call. */
static void random_i8(struct check *check, float *out, int n) {
    gen_floats(&check->gen, (enum gen_kind)gen_below(&check->gen, GEN_N_KINDS), out, (size_t)n);
}

static float largest_of(const float *x, int n) {
    float largest = 0;
    for (int i = 0; i < n; i++) largest = fmaxf(largest, fabsf(x[i]));
    return largest;
}

/* A byte times the scale is within half a step of its value, and the bytes use the whole range. */
static void check_vector_i8(const struct check *check, const float *x, const int *q, float scale, int n) {
    float amax = largest_of(x, n);
    int q_max = 0;
    if (scale != amax / 127.0f) check_fail(check, "scale is %a, largest value %a", (double)scale, (double)amax);
    for (int d = 0; d < n; d++) {
        if (amax > 0x1p-100f) check_near(check, (double)x[d], (float)q[d] * scale, 0.50002 * (double)scale, "value", d);
        if (abs(q[d]) > q_max) q_max = abs(q[d]);
    }
    if (amax > 0x1p-100f ? q_max != 127 : q_max > 127) check_fail(check, "largest byte is %d", q_max);
}

void state_check_kv_i8_spec(struct check *check) {
    static float k[MAX_DIM], v[MAX_DIM];
    static _Alignas(64) uint8_t k_block[64 * (MAX_DIM + 4)];
    static _Alignas(64) int8_t v_block[64 * (MAX_DIM + 4)];
    for (int block_tokens = 16; block_tokens <= 64; block_tokens *= 2)
        for (int slot = 0; slot < block_tokens; slot++) {
            int head_dim = 16 * gen_between(&check->gen, 1, 16), q[2][MAX_DIM];
            float scales[2];
            size_t scale_off = kv_i8_scales_off(block_tokens, head_dim) + (size_t)slot * sizeof(float);
            random_i8(check, k, head_dim);
            random_i8(check, v, head_dim);
            check->scalar->kv_store_i8(k, v, k_block, v_block, slot, block_tokens, head_dim);
            memcpy(&scales[0], k_block + scale_off, sizeof scales[0]);
            memcpy(&scales[1], v_block + scale_off, sizeof scales[1]);
            for (int d = 0; d < head_dim; d++) {
                q[0][d] = k_block[(d / 4 * block_tokens + slot) * 4 + d % 4] - 128;
                q[1][d] = v_block[(slot / 4 * head_dim + d) * 4 + slot % 4];
            }
            check_vector_i8(check, k, q[0], scales[0], head_dim);
            check_vector_i8(check, v, q[1], scales[1], head_dim);
            ++*check->n_cases;
        }
}

/* As check_vector_i8, with a scale of its own for each part, and that rounded to f16. */
static void check_vector_q8_0(const struct check *check, const float *x, const int *q, const float *scales, int n) {
    for (int part = 0; part * KV_Q8_0_DIMS < n; part++, x += KV_Q8_0_DIMS, q += KV_Q8_0_DIMS) {
        float amax = largest_of(x, KV_Q8_0_DIMS), exact = amax / 127.0f, scale = scales[part];
        int q_max = 0;
        if (scale != dtype_f16_to_f32(dtype_f32_to_f16(exact)))
            check_fail(check, "scale of part %d is %a, largest value %a", part, (double)scale, (double)amax);
        double bound = 0.50002 * (double)exact + 127 * fabs((double)scale - (double)exact);
        for (int d = 0; d < KV_Q8_0_DIMS; d++) {
            if (amax > 0x1p-100f) check_near(check, (double)x[d], (float)q[d] * scale, bound, "value", d);
            if (abs(q[d]) > q_max) q_max = abs(q[d]);
        }
        if (amax > 0x1p-100f ? q_max != 127 : q_max > 127) check_fail(check, "largest byte is %d", q_max);
    }
}

void state_check_kv_q8_0_spec(struct check *check) {
    static float k[MAX_DIM], v[MAX_DIM];
    static _Alignas(64) uint8_t k_block[64 * (MAX_DIM + MAX_DIM / 16)];
    static _Alignas(64) int8_t v_block[64 * (MAX_DIM + MAX_DIM / 16)];
    for (int block_tokens = 16; block_tokens <= 64; block_tokens *= 2)
        for (int slot = 0; slot < block_tokens; slot++) {
            int head_dim = KV_Q8_0_DIMS * gen_between(&check->gen, 1, 8), q[2][MAX_DIM];
            float scales[2][MAX_DIM / KV_Q8_0_DIMS];
            for (int part = 0; part < head_dim / KV_Q8_0_DIMS; part++) {
                random_i8(check, k + part * KV_Q8_0_DIMS, KV_Q8_0_DIMS);
                random_i8(check, v + part * KV_Q8_0_DIMS, KV_Q8_0_DIMS);
            }
            check->scalar->kv_store_q8_0(k, v, k_block, v_block, slot, block_tokens, head_dim);
            for (int part = 0; part < head_dim / KV_Q8_0_DIMS; part++) {
                size_t off = kv_q8_0_scale_off(slot, part, block_tokens, head_dim);
                uint16_t halves[2];
                memcpy(&halves[0], k_block + off, sizeof halves[0]);
                memcpy(&halves[1], v_block + off, sizeof halves[1]);
                for (int i = 0; i < 2; i++) scales[i][part] = dtype_f16_to_f32(halves[i]);
            }
            for (int d = 0; d < head_dim; d++) {
                q[0][d] = k_block[(d / 4 * block_tokens + slot) * 4 + d % 4] - 128;
                q[1][d] = v_block[(slot / 4 * head_dim + d) * 4 + slot % 4];
            }
            check_vector_q8_0(check, k, q[0], scales[0], head_dim);
            check_vector_q8_0(check, v, q[1], scales[1], head_dim);
            ++*check->n_cases;
        }
}

static size_t kv_bytes(const struct check *check, int block_tokens, int head_dim) {
    if (check->dtype == DTYPE_I8) return kv_i8_block_bytes(block_tokens, head_dim);
    if (check->dtype == DTYPE_Q8_0) return kv_q8_0_block_bytes(block_tokens, head_dim);
    return (size_t)(block_tokens * head_dim) * item_bytes(check);
}

static void kv_call(struct check *check, const struct guard guards[4], int slot, int block_tokens, int head_dim) {
    static float k[MAX_DIM], v[MAX_DIM];
    static _Alignas(64) uint8_t want_k[64 * MAX_DIM * 4], want_v[64 * MAX_DIM * 4];
    size_t n_bytes = kv_bytes(check, block_tokens, head_dim), in_bytes = (size_t)head_dim * sizeof *k;
    bool has_bytes = check->dtype == DTYPE_I8 || check->dtype == DTYPE_Q8_0;
    (has_bytes ? random_i8 : random_kv)(check, k, head_dim);
    (has_bytes ? random_i8 : random_kv)(check, v, head_dim);
    guard_paint(want_k, n_bytes);
    guard_paint(want_v, n_bytes);
    store_of(check, check->scalar)(k, v, want_k, want_v, slot, block_tokens, head_dim);
    void *got_k = guard_place_output(&guards[2], n_bytes, GUARD_AT_END);
    void *got_v = guard_place_output(&guards[3], n_bytes, GUARD_AT_END);
    store_of(check, check->tested)(guard_copy(&guards[0], k, in_bytes, any_place(check)),
                                   guard_copy(&guards[1], v, in_bytes, any_place(check)), got_k, got_v, slot,
                                   block_tokens, head_dim);
    ++*check->n_cases;
    if (memcmp(want_k, got_k, n_bytes) != 0 || memcmp(want_v, got_v, n_bytes) != 0)
        check_fail(check, "slot %d of %d, head_dim %d: K or V block differs", slot, block_tokens, head_dim);
    check_intact(check, &guards[2], got_k, n_bytes, "K");
    check_intact(check, &guards[3], got_v, n_bytes, "V");
}

void state_check_kv_same(struct check *check) {
    struct guard guards[4];
    for (int i = 0; i < 4; i++) guard_init(&guards[i], 64 * MAX_DIM * sizeof(float));
    const int step = check->dtype == DTYPE_Q8_0 ? KV_Q8_0_DIMS : 16;
    for (int head_dim = step; head_dim <= MAX_DIM; head_dim += step)
        for (int block_tokens = 16; block_tokens <= 64; block_tokens *= 2)
            for (int slot = 0; slot < block_tokens; slot += check->is_slow ? 5 : 1)
                kv_call(check, guards, slot, block_tokens, head_dim);
}

/* ---- hadamard ---- */

void state_check_hadamard_spec(struct check *check) {
    float x[MAX_DIM], out[MAX_DIM], back[MAX_DIM];
    for (int round = 0; round < 200; round++) {
        int dim = 16 * gen_between(&check->gen, 1, 16), piece = 1;
        while (dim % (2 * piece) == 0) piece *= 2;
        float factor = 1.0f / (float)piece;
        gen_floats(&check->gen, GEN_NORMAL, x, (size_t)dim);
        check->scalar->hadamard(x, out, 1.0f, dim);
        check->scalar->hadamard(out, back, factor, dim);
        for (int i = 0; i < dim; i++) {
            double sum = 0, sum_abs = 0;
            for (int j = 0; j < piece; j++) {
                double term = (double)x[i / piece * piece + j];
                sum += __builtin_popcount((unsigned)(i % piece & j)) % 2 ? -term : term;
                sum_abs += fabs(term);
            }
            check_near(check, sum, out[i], sum_abs * U * 9, "value", i);
            check_near(check, (double)x[i], back[i], sum_abs * U * 18, "value of the way back", i);
        }
        ++*check->n_cases;
    }
}

void state_check_hadamard_same(struct check *check) {
    static float x[MAX_DIM], expected[MAX_DIM];
    struct guard guards[2];
    for (int i = 0; i < 2; i++) guard_init(&guards[i], sizeof x);
    for (int round = 0; round < (check->is_slow ? 10 : 300); round++)
        for (int dim = 16; dim <= MAX_DIM; dim += 16) {
            size_t n_bytes = (size_t)dim * sizeof *x;
            float factor = round % 2 ? 1.0f : 1.0f / 64;
            gen_floats(&check->gen, (enum gen_kind)gen_below(&check->gen, GEN_N_KINDS), x, (size_t)dim);
            check->scalar->hadamard(x, expected, factor, dim);
            float *out = guard_place_output(&guards[1], n_bytes, any_place(check));
            bool is_in_place = round % 3 == 0;
            if (is_in_place) memcpy(out, x, n_bytes);
            const float *in = is_in_place ? out : guard_copy(&guards[0], x, n_bytes, any_place(check));
            check->tested->hadamard(in, out, factor, dim);
            ++*check->n_cases;
            check_equal(check, expected, out, (size_t)dim, "head_dim %d, round %d", dim, round);
            check_intact(check, &guards[1], out, n_bytes, "out");
        }
}
