#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "kernelcheck/check.h"
#include "kernels/kv_i8.h"
#include "kernels/kv_q8_0.h"
#include "kernels/scalar/quantize_i8_scalar.h"

#define MAX_ROWS ATTENTION_MAX_ROWS
#define MAX_DIM ATTENTION_MAX_HEAD_DIM
#define MAX_KEYS 1536
#define MAX_BLOCKS (MAX_KEYS / 16)
#define MAX_PARTS (MAX_DIM / KV_Q8_0_DIMS)
#define U 0x1p-24

/* ---- one sequence ---- */

struct sequence {
    int head_dim, block_tokens, n_keys; /* slots from n_keys on hold NaN */
    uint8_t *k, *v;                     /* MAX_KEYS / block_tokens blocks each */
    float *k_values, *v_values;         /* [n_keys][head_dim] as stored, for double */
    float (*v_scales)[MAX_PARTS];       /* [n_keys], int8 (one part) and q8_0 only */
    int n_rows;
    float *q_values; /* [MAX_ROWS][head_dim] */
    const float *q[MAX_ROWS];
    int first_key[MAX_ROWS], last_key[MAX_ROWS];
};

static void *taken(size_t n_bytes) {
    void *p = mem_alloc(n_bytes);
    REQUIRE(p);
    return p;
}

static void sequence_alloc(struct sequence *sequence) {
    size_t n = MAX_KEYS * MAX_DIM;
    *sequence = (struct sequence){.k = taken(n * 4),
                                  .v = taken(n * 4),
                                  .k_values = taken(n * 4),
                                  .v_values = taken(n * 4),
                                  .v_scales = taken(MAX_KEYS * MAX_PARTS * 4),
                                  .q_values = taken(MAX_ROWS * MAX_DIM * 4)};
}

static void put(const struct check *check, uint8_t *block, size_t at, float value) {
    if (check->dtype == DTYPE_F16) {
        uint16_t half = dtype_f32_to_f16(value);
        memcpy(block + 2 * at, &half, sizeof half);
    } else {
        memcpy(block + 4 * at, &value, sizeof value);
    }
}

static float kept(const struct check *check, float value) {
    return check->dtype == DTYPE_F16 ? dtype_f16_to_f32(dtype_f32_to_f16(value)) : value;
}

/* How large scores get: one weight takes all, weights underflow, or scores pass the mask's value. */
enum spread { SPREAD_SOFT, SPREAD_HARD, SPREAD_EXTREME, N_SPREADS };

/* Kinds whose products stay far from infinity: an infinite score makes NaN, whose order is no part of the contract. */
static float any_value(struct check *check, enum gen_kind kind) {
    float value = gen_float(&check->gen, kind);
    return fabsf(value) > 1e17f ? copysignf(1e17f, value) : value;
}

static size_t block_bytes(const struct check *check, const struct sequence *sequence) {
    if (check->dtype == DTYPE_I8) return kv_i8_block_bytes(sequence->block_tokens, sequence->head_dim);
    if (check->dtype == DTYPE_Q8_0) return kv_q8_0_block_bytes(sequence->block_tokens, sequence->head_dim);
    return (size_t)(sequence->block_tokens * sequence->head_dim) * (size_t)dtype_block_bytes(check->dtype);
}

static bool has_scales(const struct check *check) {
    return check->dtype == DTYPE_I8 || check->dtype == DTYPE_Q8_0;
}

/* Dims that share a scale. */
static int part_dims(const struct check *check, const struct sequence *sequence) {
    return check->dtype == DTYPE_Q8_0 ? KV_Q8_0_DIMS : sequence->head_dim;
}

/* x as a part of K or V is stored; returns its scale. */
static float kept_part(const struct check *check, const float *x, float *out, int n) {
    int8_t q[MAX_DIM];
    float scale = quantize_i8_scalar(x, q, n);
    if (check->dtype == DTYPE_Q8_0) scale = dtype_f16_to_f32(dtype_f32_to_f16(scale));
    for (int i = 0; i < n; i++) out[i] = (float)q[i] * scale;
    return scale;
}

static void put_key(const struct check *check, const struct sequence *sequence, int key, const float *k,
                    const float *v) {
    int dim = sequence->head_dim, tokens = sequence->block_tokens, slot = key % tokens;
    size_t off = block_bytes(check, sequence) * (size_t)(key / tokens);
    uint8_t *k_block = sequence->k + off, *v_block = sequence->v + off;
    float *k_kept = sequence->k_values + key * dim, *v_kept = sequence->v_values + key * dim;
    if (has_scales(check)) {
        const struct kernel_table *scalar = check->scalar;
        (check->dtype == DTYPE_I8 ? scalar->kv_store_i8 : scalar->kv_store_q8_0)(k, v, k_block, v_block, slot, tokens,
                                                                                 dim);
        for (int part = 0, d = 0, n = part_dims(check, sequence); d < dim; part++, d += n) {
            kept_part(check, k + d, k_kept + d, n);
            sequence->v_scales[key][part] = kept_part(check, v + d, v_kept + d, n);
        }
        return;
    }
    for (int d = 0; d < dim; d++) {
        put(check, k_block, (size_t)(d * tokens + slot), k[d]);
        put(check, v_block, (size_t)(slot * dim + d), v[d]);
        k_kept[d] = kept(check, k[d]), v_kept[d] = kept(check, v[d]);
    }
}

static void fill_keys(struct check *check, struct sequence *sequence, enum gen_kind k_kind, enum gen_kind v_kind) {
    int dim = sequence->head_dim, tokens = sequence->block_tokens;
    size_t n_all = (size_t)((sequence->n_keys + tokens - 1) / tokens) * block_bytes(check, sequence);
    guard_paint(sequence->k, n_all);
    guard_paint(sequence->v, n_all);
    for (int key = 0; key < sequence->n_keys; key++) {
        float k[MAX_DIM], v[MAX_DIM];
        for (int d = 0; d < dim; d++) k[d] = any_value(check, k_kind), v[d] = any_value(check, v_kind);
        put_key(check, sequence, key, k, v);
    }
}

/* Rows at the end of the sequence, as a chunk of queries has them, or anywhere; one sees the last key. */
static void fill_rows(struct check *check, struct sequence *sequence, enum spread spread) {
    static const int windows[] = {0, 1, 17, 64, 100, 512, 700};
    struct gen *gen = &check->gen;
    int window = gen_below(gen, 2) ? 0 : windows[gen_below(gen, 7)], is_chunk = gen_below(gen, 2);
    float scale = spread == SPREAD_SOFT ? 0.3f : spread == SPREAD_HARD ? 20.0f : 1e16f;
    for (int r = 0; r < sequence->n_rows; r++) {
        int last = is_chunk ? sequence->n_keys - sequence->n_rows + r : gen_below(gen, sequence->n_keys);
        if (r + 1 == sequence->n_rows) last = sequence->n_keys - 1;
        sequence->last_key[r] = last < 0 ? 0 : last;
        sequence->first_key[r] = window && last >= window ? last - window + 1 : 0;
        float *q = sequence->q_values + r * sequence->head_dim;
        gen_floats(gen, GEN_NORMAL, q, (size_t)sequence->head_dim);
        for (int d = 0; d < sequence->head_dim; d++) q[d] *= scale;
        sequence->q[r] = q;
    }
}

static void sequence_fill(struct check *check, struct sequence *sequence, int n_keys, enum spread spread) {
    static const int dims[] = {16, 32, 48, 64, 80, 96, 112, 128, 160, 192, 256};
    static const enum gen_kind kinds[] = {GEN_NORMAL, GEN_NORMAL, GEN_MIXED, GEN_DENORMAL, GEN_ZERO,
                                          GEN_MAX,    GEN_SMALL,  GEN_HUGE,  GEN_SPARSE};
    bool is_plain = gen_below(&check->gen, 3) == 0;
    do sequence->head_dim = dims[gen_below(&check->gen, 11)];
    while (check->dtype == DTYPE_Q8_0 && sequence->head_dim % KV_Q8_0_DIMS);
    sequence->block_tokens = 16 << gen_below(&check->gen, 3);
    sequence->n_keys = n_keys;
    sequence->n_rows = gen_between(&check->gen, 1, MAX_ROWS);
    enum gen_kind k_kind = is_plain ? GEN_NORMAL : kinds[gen_below(&check->gen, 9)];
    enum gen_kind v_kind = is_plain ? GEN_NORMAL : kinds[gen_below(&check->gen, 9)];
    if (k_kind == GEN_HUGE && spread == SPREAD_EXTREME) k_kind = GEN_NORMAL;
    fill_keys(check, sequence, k_kind, v_kind);
    fill_rows(check, sequence, spread);
}

/* ---- calls ---- */

struct fold_guards {
    struct guard k[MAX_BLOCKS], v[MAX_BLOCKS], q[MAX_ROWS], ints[2], pointers[3], max, denom, o;
};

static void guards_init(struct fold_guards *guards) {
    for (int i = 0; i < ATTENTION_PARTITION_KEYS / 16; i++) {
        guard_init(&guards->k[i], 64 * MAX_DIM * 4);
        guard_init(&guards->v[i], 64 * MAX_DIM * 4);
    }
    for (int i = 0; i < MAX_ROWS; i++) guard_init(&guards->q[i], MAX_DIM * 4);
    for (int i = 0; i < 2; i++) guard_init(&guards->ints[i], MAX_ROWS * 4);
    for (int i = 0; i < 3; i++) guard_init(&guards->pointers[i], MAX_BLOCKS * sizeof(void *));
    guard_init(&guards->max, MAX_ROWS * 4);
    guard_init(&guards->denom, MAX_ROWS * 4);
    guard_init(&guards->o, MAX_ROWS * MAX_DIM * 4);
}

static attention_fold_fn *fold_of(const struct check *check, const struct kernel_table *table, bool is_rows) {
    if (check->dtype == DTYPE_I8) return is_rows ? table->attention_rows_i8 : table->attention_keys_i8;
    if (check->dtype == DTYPE_Q8_0) return is_rows ? table->attention_rows_q8_0 : table->attention_keys_q8_0;
    if (check->dtype == DTYPE_F16) return is_rows ? table->attention_rows_f16 : table->attention_keys_f16;
    return is_rows ? table->attention_rows_f32 : table->attention_keys_f32;
}

static bool is_rows_form(const struct check *check) {
    return strncmp(check->op, "attention_rows", 14) == 0;
}

struct range {
    int row_begin, n_rows, key_begin, key_end;
};

/* Folds straight from the sequence's memory. */
static void plain_fold(const struct check *check, attention_fold_fn *fold, const struct sequence *sequence,
                       struct range range, struct attention_state *state) {
    const void *k_blocks[MAX_BLOCKS], *v_blocks[MAX_BLOCKS];
    size_t bytes = block_bytes(check, sequence);
    int first = range.key_begin / sequence->block_tokens;
    for (int b = first; b * sequence->block_tokens < range.key_end; b++) {
        k_blocks[b - first] = sequence->k + bytes * (size_t)b;
        v_blocks[b - first] = sequence->v + bytes * (size_t)b;
    }
    struct attention_rows rows = {range.n_rows, sequence->q + range.row_begin, sequence->first_key + range.row_begin,
                                  sequence->last_key + range.row_begin};
    struct attention_keys keys = {k_blocks, v_blocks, sequence->block_tokens, sequence->head_dim};
    fold(&rows, &keys, range.key_begin, range.key_end, state);
}

/* As NaN in spoil_tail; its bytes are at an end of their range. */
static void spoil_bytes(const struct check *check, const struct sequence *sequence, int slot, uint8_t *k, uint8_t *v) {
    int dim = sequence->head_dim, tokens = sequence->block_tokens, n = part_dims(check, sequence);
    bool is_i8 = check->dtype == DTYPE_I8;
    for (int d = 0; d < dim; d++) {
        k[kv_i8_k_off(slot, d, tokens)] = 0xff;
        v[kv_i8_v_off(slot, d, dim)] = 0x80;
    }
    for (int part = 0; part * n < dim; part++) {
        size_t off = is_i8 ? kv_i8_scales_off(tokens, dim) + (size_t)slot * sizeof(float)
                           : kv_q8_0_scale_off(slot, part, tokens, dim);
        memset(k + off, 0xff, is_i8 ? sizeof(float) : sizeof(uint16_t));
        memset(v + off, 0xff, is_i8 ? sizeof(float) : sizeof(uint16_t));
    }
}

/* Slots of the last block from key_end on become NaN: no row of the call may see them. */
static void spoil_tail(const struct check *check, const struct sequence *sequence, int n_slots, uint8_t *k,
                       uint8_t *v) {
    int dim = sequence->head_dim, tokens = sequence->block_tokens;
    for (int slot = n_slots; slot < tokens; slot++) {
        if (has_scales(check)) {
            spoil_bytes(check, sequence, slot, k, v);
            continue;
        }
        for (int d = 0; d < dim; d++) {
            size_t at[2] = {(size_t)(d * tokens + slot), (size_t)(slot * dim + d)};
            if (check->dtype == DTYPE_F16) {
                memset(k + 2 * at[0], 0xff, 2);
                memset(v + 2 * at[1], 0xff, 2);
            } else {
                memset(k + 4 * at[0], 0xff, 4);
                memset(v + 4 * at[1], 0xff, 4);
            }
        }
    }
}

/* Everything the kernel reads ends at a page, blocks in memory of their own each. */
static void guarded_fold(struct check *check, const struct fold_guards *guards, const struct sequence *sequence,
                         struct range range, struct attention_state *out) {
    const void *k_blocks[MAX_BLOCKS], *v_blocks[MAX_BLOCKS];
    const float *q[MAX_ROWS];
    size_t bytes = block_bytes(check, sequence), dim_bytes = (size_t)sequence->head_dim * 4, n = (size_t)range.n_rows;
    int tokens = sequence->block_tokens, first = range.key_begin / tokens, n_blocks = 0;
    for (int b = first; b * tokens < range.key_end; b++, n_blocks++) {
        uint8_t *k = guard_copy(&guards->k[b - first], sequence->k + bytes * (size_t)b, bytes, GUARD_AT_END);
        uint8_t *v = guard_copy(&guards->v[b - first], sequence->v + bytes * (size_t)b, bytes, GUARD_AT_END);
        if ((b + 1) * tokens > range.key_end) spoil_tail(check, sequence, range.key_end - b * tokens, k, v);
        k_blocks[b - first] = k, v_blocks[b - first] = v;
    }
    for (int r = 0; r < range.n_rows; r++)
        q[r] = guard_copy(&guards->q[r], sequence->q[range.row_begin + r], dim_bytes,
                          (enum guard_place)gen_below(&check->gen, GUARD_N_PLACES));
    struct attention_rows rows = {
        range.n_rows, guard_copy(&guards->pointers[0], q, n * sizeof *q, GUARD_AT_END),
        guard_copy(&guards->ints[0], sequence->first_key + range.row_begin, n * sizeof(int), GUARD_AT_END),
        guard_copy(&guards->ints[1], sequence->last_key + range.row_begin, n * sizeof(int), GUARD_AT_END)};
    struct attention_keys keys = {
        guard_copy(&guards->pointers[1], k_blocks, (size_t)n_blocks * sizeof(void *), GUARD_AT_END),
        guard_copy(&guards->pointers[2], v_blocks, (size_t)n_blocks * sizeof(void *), GUARD_AT_END), tokens,
        sequence->head_dim};
    enum guard_place place = gen_below(&check->gen, 2) ? GUARD_AT_END : GUARD_SHIFTED;
    *out = (struct attention_state){guard_place_output(&guards->max, n * 4, place),
                                    guard_place_output(&guards->denom, n * 4, place),
                                    guard_place_output(&guards->o, n * dim_bytes, place)};
    fold_of(check, check->tested, is_rows_form(check))(&rows, &keys, range.key_begin, range.key_end, out);
    ++*check->n_cases;
    check_intact(check, &guards->max, out->max, n * 4, "max");
    check_intact(check, &guards->denom, out->denom, n * 4, "denom");
    check_intact(check, &guards->o, out->o, n * dim_bytes, "o");
}

/* A folded state has one value per zero sign only after finishing: rule 4's masked products are zeros of either. */
static void check_state(const struct check *check, const struct sequence *sequence, struct range range,
                        const struct attention_state *want, const struct attention_state *got) {
    struct {
        const char *name;
        const float *want, *got;
        int n;
    } parts[] = {{"max", want->max, got->max, range.n_rows},
                 {"denom", want->denom, got->denom, range.n_rows},
                 {"o", want->o, got->o, range.n_rows * sequence->head_dim}};
    for (int i = 0; i < 3; i++) {
        long at = check_first_difference(parts[i].want, parts[i].got, (size_t)parts[i].n, CHECK_ZEROS_EQUAL);
        if (at >= 0)
            check_fail(check, "head_dim %d, blocks of %d, keys %d..%d, %d rows: %s %ld is %a, should be %a",
                       sequence->head_dim, sequence->block_tokens, range.key_begin, range.key_end - 1, range.n_rows,
                       parts[i].name, at, (double)parts[i].got[at], (double)parts[i].want[at]);
    }
}

struct state_floats {
    float max[MAX_ROWS], denom[MAX_ROWS], o[MAX_ROWS * MAX_DIM];
};

static struct attention_state state_of(struct state_floats *floats) {
    return (struct attention_state){floats->max, floats->denom, floats->o};
}

static int partition_end(int begin, int n_keys) {
    int end = (begin / ATTENTION_PARTITION_KEYS + 1) * ATTENTION_PARTITION_KEYS;
    return end < n_keys ? end : n_keys;
}

/* Attention of all rows through fold, merge and finish of the scalar table, with one or the other form of fold. */
static void attend(const struct check *check, attention_fold_fn *fold, const struct sequence *sequence,
                   struct range rows, float *out) {
    static struct state_floats whole_floats, part_floats;
    struct attention_state whole = state_of(&whole_floats), part = state_of(&part_floats);
    int dim = sequence->head_dim;
    for (int begin = rows.key_begin; begin < rows.key_end; begin = partition_end(begin, rows.key_end)) {
        struct range range = {rows.row_begin, rows.n_rows, begin, partition_end(begin, rows.key_end)};
        plain_fold(check, fold, sequence, range, begin == rows.key_begin ? &whole : &part);
        if (begin != rows.key_begin) check->scalar->attention_merge(&whole, &part, rows.n_rows, dim);
    }
    for (int r = 0; r < rows.n_rows; r++)
        check->scalar->attention_finish(whole.o + r * dim, whole.denom[r], out + r * dim, dim);
}

/* ---- every tier ---- */

static int latest_key(const struct sequence *sequence, int row_begin, int n_rows) {
    int last = 0;
    for (int r = row_begin; r < row_begin + n_rows; r++)
        if (sequence->last_key[r] > last) last = sequence->last_key[r];
    return last;
}

static void check_range(struct check *check, const struct fold_guards *guards, const struct sequence *sequence,
                        struct range range) {
    static struct state_floats floats;
    struct attention_state want = state_of(&floats), got;
    plain_fold(check, fold_of(check, check->scalar, is_rows_form(check)), sequence, range, &want);
    guarded_fold(check, guards, sequence, range, &got);
    check_state(check, sequence, range, &want, &got);
}

/* Each partition, or its end from some tile on, with all rows and with some of them. */
static void check_ranges(struct check *check, const struct fold_guards *guards, const struct sequence *sequence) {
    for (int begin = 0; begin < sequence->n_keys; begin = partition_end(begin, sequence->n_keys)) {
        struct range range = {0, sequence->n_rows, begin, partition_end(begin, sequence->n_keys)};
        int n_tiles = (range.key_end - begin + ATTENTION_TILE_KEYS - 1) / ATTENTION_TILE_KEYS;
        if (gen_below(&check->gen, 2)) range.key_begin += ATTENTION_TILE_KEYS * gen_below(&check->gen, n_tiles);
        check_range(check, guards, sequence, range);
        range.row_begin = gen_below(&check->gen, sequence->n_rows);
        range.n_rows = gen_below(&check->gen, 2) ? 1 : gen_between(&check->gen, 1, sequence->n_rows - range.row_begin);
        int last = latest_key(sequence, range.row_begin, range.n_rows);
        if (last < range.key_begin) continue;
        if (range.key_end > last + 1) range.key_end = last + 1;
        check_range(check, guards, sequence, range);
    }
}

/* The whole way to the output, where the signs of zeros count. */
static void check_outputs(const struct check *check, attention_fold_fn *want, attention_fold_fn *got,
                          const struct sequence *sequence, const char *what) {
    static float expected[MAX_ROWS * MAX_DIM], out[MAX_ROWS * MAX_DIM], alone[MAX_DIM];
    int dim = sequence->head_dim;
    struct range all = {0, sequence->n_rows, 0, sequence->n_keys};
    attend(check, want, sequence, all, expected);
    attend(check, got, sequence, all, out);
    check_equal(check, expected, out, (size_t)(all.n_rows * dim), "%s: %d rows of %d, %d keys", what, all.n_rows, dim,
                sequence->n_keys);
    for (int r = 0; r < all.n_rows; r++) {
        attend(check, got, sequence, (struct range){r, 1, 0, sequence->last_key[r] + 1}, alone);
        check_equal(check, expected + r * dim, alone, (size_t)dim, "%s: row %d alone, head_dim %d, %d keys", what, r,
                    dim, sequence->n_keys);
    }
}

void fold_check_same(struct check *check) {
    static struct fold_guards guards;
    struct sequence sequence;
    guards_init(&guards);
    sequence_alloc(&sequence);
    int n_rounds = check->is_slow ? 30 : 260;
    for (int round = 0; round < n_rounds; round++) {
        /* All short lengths once, then longer ones over several partitions. */
        int n_keys = round < 200 && !check->is_slow ? round + 1 : gen_between(&check->gen, 1, MAX_KEYS);
        sequence_fill(check, &sequence, n_keys, (enum spread)gen_below(&check->gen, N_SPREADS));
        check_ranges(check, &guards, &sequence);
        if (round % 4 == 0)
            check_outputs(check, fold_of(check, check->scalar, is_rows_form(check)),
                          fold_of(check, check->tested, is_rows_form(check)), &sequence, "tiers");
    }
}

/* ---- scalar against double ---- */

/* What weights of bytes may change in output dim d: half a step per key, the step a 255th of the tile's largest. */
static double rounding_of(const struct check *check, const struct sequence *sequence, int first, int last,
                          const double *weight, int d) {
    int part = d / part_dims(check, sequence);
    double error = 0;
    for (int begin = first, end; begin <= last; begin = end) {
        double largest = 0, sum = 0;
        end = (begin / ATTENTION_TILE_KEYS + 1) * ATTENTION_TILE_KEYS;
        if (end > last + 1) end = last + 1;
        for (int key = begin; key < end; key++) {
            double scale = (double)sequence->v_scales[key][part];
            largest = fmax(largest, weight[key] * scale);
            if (scale > 0) sum += fabs((double)sequence->v_values[key * sequence->head_dim + d]) / scale;
        }
        error += largest / 510 * sum;
    }
    return error;
}

/* Relative error of a weight: its score is off by so many roundings of the summed products, exp is not exact. */
static double weight_error(const struct check *check, int dim, int n_keys, double magnitude) {
    int n_tiles = n_keys / ATTENTION_TILE_KEYS + 2;
    /* int8: integer dots, 8 roundings until the exponent; exp2_scalar at the weight and whenever the maximum moves. */
    if (check->dtype == DTYPE_I8) return U * (8 * magnitude + n_keys + 8 * n_tiles) + 1.1e-4 * (1 + n_tiles);
    /* q8_0: and one rounding of each part's product of scales, one for each part that is added. */
    if (check->dtype == DTYPE_Q8_0)
        return U * ((8 + 1 + dim / KV_Q8_0_DIMS) * magnitude + n_keys + 8 * n_tiles) + 1.1e-4 * (1 + n_tiles);
    /* A score is off by dim roundings, its difference to the maximum by one, all of which exp turns into a relative
     * error; exp itself 4 U; then per key one fma and per tile and merge a factor. */
    return U * (magnitude * (2 * dim + 4) + 4 + n_keys + 8 * n_tiles + 8);
}

/* Softmax over the keys that the row sees, in double, with the float scores of rule 4's chain left out. */
static void check_row_against_double(const struct check *check, const struct sequence *sequence, int row,
                                     const float *out) {
    static double score[MAX_KEYS], weight[MAX_KEYS];
    int dim = sequence->head_dim, first = sequence->first_key[row], last = sequence->last_key[row];
    double max = -INFINITY, denom = 0, magnitude = 0, q[MAX_DIM];
    for (int begin = 0, n = part_dims(check, sequence); begin < dim; begin += n) {
        int8_t rounded[MAX_DIM];
        float q_scale = quantize_i8_scalar(sequence->q[row] + begin, rounded, n);
        for (int d = begin; d < begin + n; d++)
            q[d] = has_scales(check) ? (double)q_scale * rounded[d - begin] : (double)sequence->q[row][d];
    }
    for (int key = first; key <= last; key++) {
        double sum = 0, sum_abs = 0;
        for (int d = 0; d < dim; d++) {
            double term = q[d] * (double)sequence->k_values[key * dim + d];
            sum += term, sum_abs += fabs(term);
        }
        score[key] = sum;
        max = fmax(max, sum), magnitude = fmax(magnitude, sum_abs);
    }
    for (int key = first; key <= last; key++) {
        weight[key] = exp(score[key] - max);
        denom += weight[key];
    }
    double rel = 2 * weight_error(check, dim, last - first + 1, magnitude); /* numerator and denominator */
    for (int d = 0; d < dim; d++) {
        double sum = 0, sum_abs = 0;
        for (int key = first; key <= last; key++) {
            double term = weight[key] * (double)sequence->v_values[key * dim + d] / denom;
            sum += term, sum_abs += fabs(term);
        }
        double bound = 1.05 * rel * sum_abs + 1e-30;
        if (has_scales(check)) bound += (1 + 2 * rel) * rounding_of(check, sequence, first, last, weight, d) / denom;
        check_near(check, sum, out[d], bound, "output", d);
    }
}

/* Data whose scores keep the bound small: |q k| summed stays below a hundred. */
static void check_plain_attention(struct check *check, struct sequence *sequence, int n_keys, enum spread spread) {
    static float out[MAX_ROWS * MAX_DIM];
    sequence_fill(check, sequence, n_keys, spread);
    fill_keys(check, sequence, GEN_NORMAL, GEN_NORMAL);
    attend(check, fold_of(check, check->scalar, is_rows_form(check)), sequence,
           (struct range){0, sequence->n_rows, 0, n_keys}, out);
    for (int r = 0; r < sequence->n_rows; r += 3)
        check_row_against_double(check, sequence, r, out + r * sequence->head_dim);
    ++*check->n_cases;
}

/* Both forms give one another's bits, and no row depends on its neighbours. */
static void check_forms(struct check *check, struct sequence *sequence, int n_keys, enum spread spread) {
    sequence_fill(check, sequence, n_keys, spread);
    attention_fold_fn *rows = fold_of(check, check->scalar, true), *keys = fold_of(check, check->scalar, false);
    check_outputs(check, keys, rows, sequence, "rows and keys in lanes");
    check_outputs(check, rows, keys, sequence, "keys and rows in lanes");
    ++*check->n_cases;
}

void fold_check_spec(struct check *check) {
    struct sequence sequence;
    sequence_alloc(&sequence);
    for (int round = 0; round < (check->is_slow ? 6 : 40); round++) {
        int n_keys = round % 2 ? gen_between(&check->gen, 1, 130) : gen_between(&check->gen, 1, MAX_KEYS);
        check_plain_attention(check, &sequence, n_keys, round % 3 ? SPREAD_SOFT : SPREAD_HARD);
        check_forms(check, &sequence, n_keys, (enum spread)(round % N_SPREADS));
    }
}
