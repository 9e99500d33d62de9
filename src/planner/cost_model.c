#include "planner/cost_model.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"

#define GAIN 0.125
#define SLOWNESS_NS 1e9
#define MAX_CORRECTION 16.0
#define MAX_ODD 4.0 /* a ratio beyond this is the host's doing */

#define MAX_REPEATS 5
#define ODD_REPEAT 1.5
#define FAR_ROWS 64  /* of a probe that measures keys */
#define FAR_POS 1024 /* keys before it */
#define MANY_ROWS 16 /* of a probe that measures logits and decode rows */

#define GUESS_DOTS_NS 200000
#define GUESS_SHARE 0.35       /* of the peak that products reach */
#define GUESS_BYTES_PER_NS 8.0 /* a modest memory */
#define GUESS_STEP_NS 50000.0

static const int table_rows[] = {1,  2,  3,  4,  5,  6,  8,   10,  12,  14,  16,  20,  24,  28,  32,
                                 40, 48, 56, 64, 80, 96, 112, 128, 192, 256, 384, 512, 768, 1024};
#define MAX_TABLE ((int)(sizeof table_rows / sizeof table_rows[0]))

/* ---- key ---- */

static void read_cpu_name(char out[96]) {
    char line[256];
    FILE *file = fopen("/proc/cpuinfo", "re");
    snprintf(out, 96, "unknown");
    while (file && fgets(line, sizeof line, file)) {
        const char *colon = strchr(line, ':');
        if (!colon || (strncmp(line, "model name", 10) != 0 && strncmp(line, "CPU part", 8) != 0)) continue;
        snprintf(out, 96, "%.*s", (int)strcspn(colon + 2, "\n"), colon + 2);
        break;
    }
    if (file) fclose(file);
}

static void make_key(struct cost_model *model, const struct cost_model_setup *setup) {
    char cpu[96], weights[HASH_SHA256_HEX_BYTES];
    read_cpu_name(cpu);
    hash_sha256_hex(setup->weights, weights);
    snprintf(model->key, sizeof model->key, "kvick " KVICK_VERSION "; %s; %s; threads %d; kv %s; activations %s; %s",
             cpu, setup->tier, setup->n_threads, setup->kv_type, setup->activations, weights);
    for (char *at = model->key; *at; at++)
        if ((unsigned char)*at < 0x20) *at = ' ';
}

/* ---- guess ---- */

static double layer_macs(const struct model_config *config) {
    double d_model = config->d_model, q_dim = (double)config->n_heads * config->head_dim,
           kv_dim = (double)config->n_kv_heads * config->head_dim;
    return d_model * (2 * q_dim + 2 * kv_dim + 3.0 * config->d_ff) * config->n_layers;
}

static double peak_macs_per_ns(const struct kernel_table *kernels) {
    int64_t start_ns = clock_now_ns(), now_ns, n = 0;
    uint32_t sum = 0;
    do {
        sum += kernels->peak_dots(100, 15, 127);
        n += 100;
        now_ns = clock_now_ns();
    } while (now_ns - start_ns < GUESS_DOTS_NS);
    /* The sum has a use, so that the work is done. */
    return (double)n * PEAK_DOTS_MACS / (double)(now_ns - start_ns) + (sum == 1 ? 1e-9 : 0);
}

static void set_windows(struct step_cost *cost, const struct model_config *config) {
    int n_windowed = 0;
    for (int i = 0; i < config->n_layers; i++) {
        if (!config->layers[i].window) continue;
        n_windowed++;
        cost->window_tokens = config->layers[i].window;
    }
    cost->window_share = (double)n_windowed / config->n_layers;
}

static void reset_corrections(struct cost_model *model) {
    for (int i = 0; i < COST_MODEL_N_PARTS; i++) {
        model->parts[i].n_seen = 0;
        model->parts[i].correction = 1;
    }
    model->slowness = 1;
}

void cost_model_init(struct cost_model *model, const struct cost_model_setup *setup, const struct model_config *config,
                     const struct kernel_table *kernels, size_t weight_bytes) {
    double rows_ns[MAX_TABLE], macs = layer_macs(config);
    double peak = setup->peak_macs_per_ns > 0 ? setup->peak_macs_per_ns : peak_macs_per_ns(kernels);
    double rate = peak * setup->n_threads * GUESS_SHARE;
    double read_ns = (double)weight_bytes / GUESS_BYTES_PER_NS;
    double key_macs = 2.0 * config->n_heads * config->head_dim * config->n_layers;
    *model = (struct cost_model){.source = COST_MODEL_GUESSED};
    make_key(model, setup);
    for (int i = 0; i < MAX_TABLE; i++) rows_ns[i] = GUESS_STEP_NS + fmax(read_ns, table_rows[i] * macs / rate);
    if (step_cost_init(&model->base, MAX_TABLE, table_rows, rows_ns, NULL)) BUG("a guessed cost is refused");
    model->base.prefill_key_ns = 4 * key_macs / rate; /* floats: a quarter of the bytes' rate */
    model->base.decode_key_ns = 2 * model->base.prefill_key_ns;
    model->base.logit_row_ns = (double)config->d_model * config->n_vocab / rate;
    set_windows(&model->base, config);
    reset_corrections(model);
}

/* ---- measuring ---- */

/* A probe, and what it took. */
struct sample {
    struct cost_model_probe probe;
    int64_t ns[MAX_REPEATS];
    int n;
};

enum { FAR_PREFILL = MAX_TABLE, NEAR_PREFILL, FAR_DECODE, NEAR_DECODE, MANY_LOGITS, ONE_LOGIT, MANY_DECODE, N_SAMPLES };

static double median_ns(const struct sample *sample) {
    int64_t sorted[MAX_REPEATS];
    int n = sample->n;
    for (int i = 0; i < n; i++) {
        int k = i;
        for (; k > 0 && sorted[k - 1] > sample->ns[i]; k--) sorted[k] = sorted[k - 1];
        sorted[k] = sample->ns[i];
    }
    /* Of two the better: what disturbs only ever adds. */
    return n ? (double)sorted[n == 2 ? 0 : n / 2] : 0;
}

static int at_most(int value, int max) {
    return value < max ? value : max;
}

/* What disturbs only ever adds: for differences, in which noise would be all there is. */
static double least_ns(const struct sample *sample) {
    int64_t least = sample->ns[0];
    for (int i = 1; i < sample->n; i++)
        if (sample->ns[i] < least) least = sample->ns[i];
    return (double)least;
}

/* The number of points of the table. */
static int choose_probes(const struct cost_model_limits *limits, struct sample samples[N_SAMPLES]) {
    int n_table = 0;
    memset(samples, 0, N_SAMPLES * sizeof *samples);
    for (; n_table < MAX_TABLE && table_rows[n_table] <= limits->max_rows; n_table++)
        samples[n_table].probe = (struct cost_model_probe){1, table_rows[n_table], 0, 1};
    int far_rows = at_most(FAR_ROWS, limits->max_rows), far_pos = at_most(FAR_POS, limits->max_pos + 1 - far_rows);
    int many = at_most(at_most(MANY_ROWS, limits->max_rows), at_most(limits->max_sequences, limits->max_logit_rows));
    if (far_pos > 0) {
        samples[FAR_PREFILL].probe = (struct cost_model_probe){1, far_rows, far_pos, 1};
        samples[NEAR_PREFILL].probe = (struct cost_model_probe){1, far_rows, 0, 1};
        samples[FAR_DECODE].probe = (struct cost_model_probe){1, 1, far_pos, 1};
        samples[NEAR_DECODE].probe = (struct cost_model_probe){1, 1, 0, 1};
    }
    if (many > 1) {
        samples[MANY_LOGITS].probe = (struct cost_model_probe){1, many, 0, many};
        samples[ONE_LOGIT].probe = (struct cost_model_probe){1, many, 0, 1};
        samples[MANY_DECODE].probe = (struct cost_model_probe){many, 1, 0, many};
    }
    return n_table;
}

/* Those at position 0, or those behind; returns what of the budget is spent. */
static int64_t run_rounds(struct sample samples[N_SAMPLES], bool is_far, int64_t spent_ns, int64_t budget_ns,
                          cost_model_run_fn *run, void *arg) {
    for (int round = 0; round < MAX_REPEATS; round++)
        for (int i = 0; i < N_SAMPLES; i++) {
            struct sample *sample = &samples[i];
            if (!sample->probe.n_rows || (sample->probe.pos > 0) != is_far) continue;
            /* What is left of the budget goes to what is cheap and noisy; all have been run once. */
            if (round && spent_ns + sample->ns[0] > budget_ns) continue;
            sample->ns[sample->n] = run(arg, &sample->probe);
            spent_ns += sample->ns[sample->n++];
        }
    return spent_ns;
}

/* Computes the first sequence's positions [from, to); returns how long it took. Memory that was never written is all
 * one page, and reading it is no work. */
static int64_t write_keys(int from, int to, int max_rows, cost_model_run_fn *run, void *arg) {
    int64_t ns = 0;
    for (int pos = from; pos < to; pos += max_rows) {
        struct cost_model_probe probe = {1, at_most(to - pos, max_rows), pos, 1};
        ns += run(arg, &probe);
    }
    return ns;
}

static void run_probes(struct sample samples[N_SAMPLES], int n_table, const struct cost_model_limits *limits,
                       cost_model_run_fn *run, void *arg) {
    /* The very first step touches memory for the first time. */
    run(arg, &samples[0].probe);
    /* Far ones last and together, as what lies before them must be computed first; they get a third of the time. */
    int64_t spent_ns = run_rounds(samples, false, 0, limits->budget_ns / 3 * 2, run, arg);
    spent_ns += write_keys(table_rows[n_table - 1], samples[FAR_PREFILL].probe.pos, limits->max_rows, run, arg);
    run_rounds(samples, true, spent_ns, limits->budget_ns, run, arg);
}

/* More than a quarter of the repeated points took half as long again at times, or hardly any could be repeated. */
static bool do_repeats_disagree(const struct sample samples[N_SAMPLES]) {
    int n_points = 0, n_repeated = 0, n_odd = 0;
    for (int i = 0; i < N_SAMPLES; i++) {
        int64_t least_ns = samples[i].ns[0], most_ns = samples[i].ns[0];
        for (int k = 1; k < samples[i].n; k++) {
            if (samples[i].ns[k] < least_ns) least_ns = samples[i].ns[k];
            if (samples[i].ns[k] > most_ns) most_ns = samples[i].ns[k];
        }
        n_points += samples[i].n > 0;
        n_repeated += samples[i].n > 1;
        n_odd += samples[i].n > 1 && (double)most_ns > ODD_REPEAT * (double)least_ns;
    }
    return 4 * n_odd > n_repeated || 4 * n_repeated < n_points;
}

static double per(double difference_ns, double n) {
    return difference_ns > 0 && n > 0 ? difference_ns / n : 0;
}

/* A share of the guess where noise hides it: corrections must have something to multiply when prompts get long. */
static double key_ns(double difference_ns, double n_keys, double guess_ns) {
    double ns = per(difference_ns, n_keys);
    return ns > 0 ? ns : guess_ns / MAX_CORRECTION;
}

/* Isotonic by pooling: values that fall are replaced by the mean of the run that does. */
static void make_ascending(double *values, int n) {
    int n_in[MAX_TABLE], n_pools = 0;
    double mean[MAX_TABLE];
    for (int i = 0; i < n; i++) {
        mean[n_pools] = values[i];
        n_in[n_pools++] = 1;
        while (n_pools > 1 && mean[n_pools - 2] > mean[n_pools - 1]) {
            int a = n_in[n_pools - 2], b = n_in[n_pools - 1];
            mean[n_pools - 2] = (mean[n_pools - 2] * a + mean[n_pools - 1] * b) / (a + b);
            n_in[--n_pools - 1] = a + b;
        }
    }
    for (int pool = 0, i = 0; pool < n_pools; pool++)
        for (int k = 0; k < n_in[pool]; k++) values[i++] = mean[pool];
}

void cost_model_measure(struct cost_model *model, const struct cost_model_limits *limits, cost_model_run_fn *run,
                        void *arg) {
    struct sample samples[N_SAMPLES];
    struct step_cost *base = &model->base;
    int n_table = choose_probes(limits, samples);
    if (n_table == 0) return;
    run_probes(samples, n_table, limits, run, arg);

    const struct cost_model_probe *far = &samples[FAR_PREFILL].probe, *many = &samples[MANY_LOGITS].probe;
    double far_ns = least_ns(&samples[FAR_PREFILL]) - least_ns(&samples[NEAR_PREFILL]);
    double far_keys = step_cost_keys(base, far->pos, far->pos + far->n_rows) - step_cost_keys(base, 0, far->n_rows);
    double decode_ns = least_ns(&samples[FAR_DECODE]) - least_ns(&samples[NEAR_DECODE]);
    double decode_keys = step_cost_keys(base, far->pos, far->pos + 1) - 1;
    base->prefill_key_ns = key_ns(far_ns, far_keys, base->prefill_key_ns);
    base->decode_key_ns = key_ns(decode_ns, decode_keys, base->decode_key_ns);
    base->logit_row_ns = per(median_ns(&samples[MANY_LOGITS]) - median_ns(&samples[ONE_LOGIT]), many->n_logit_rows - 1);
    double of_many_ns = median_ns(&samples[MANY_DECODE]) - median_ns(&samples[MANY_LOGITS]);
    base->decode_row_ns = per(of_many_ns, many->n_rows);

    double rows_ns[MAX_TABLE], least_ns = median_ns(&samples[0]) / 2;
    for (int i = 0; i < n_table; i++) {
        double keys = step_cost_keys(base, 0, table_rows[i]);
        rows_ns[i] = fmax(least_ns, median_ns(&samples[i]) - keys * base->prefill_key_ns - base->logit_row_ns);
        rows_ns[i] = fmax(rows_ns[i], 1);
    }
    make_ascending(rows_ns, n_table);
    for (int i = 0; i < n_table; i++) {
        base->rows[i] = table_rows[i];
        base->rows_ns[i] = rows_ns[i];
    }
    base->n_points = n_table;
    model->source = COST_MODEL_MEASURED;
    model->is_disturbed = do_repeats_disagree(samples);
    reset_corrections(model);
}

/* ---- corrections ---- */

static int regime_of(int n_rows) {
    return n_rows <= 16 ? 0 : n_rows <= 96 ? 1 : 2;
}

void cost_model_fill(const struct cost_model *model, struct step_cost *out) {
    *out = model->base;
    for (int i = 0; i < out->n_points; i++) out->rows_ns[i] *= model->parts[regime_of(out->rows[i])].correction;
    make_ascending(out->rows_ns, out->n_points);
    out->prefill_key_ns *= model->parts[COST_MODEL_PREFILL_KEYS].correction;
    out->decode_key_ns *= model->parts[COST_MODEL_DECODE_KEYS].correction;
    out->slowness = model->slowness;
}

static double clamp(double x, double low, double high) {
    return x < low ? low : x > high ? high : x;
}

static double median_of(const double *values) {
    double sorted[COST_MODEL_N_RECENT];
    for (int i = 0; i < COST_MODEL_N_RECENT; i++) {
        int k = i;
        for (; k > 0 && sorted[k - 1] > values[i]; k--) sorted[k] = sorted[k - 1];
        sorted[k] = values[i];
    }
    return sorted[COST_MODEL_N_RECENT / 2];
}

/* The largest part of a step, and how much of the prediction it is. */
static int largest_part(const struct cost_model *model, const struct step_shape *shape, double predicted_ns,
                        double *out_ns) {
    double prefill_ns =
               shape->n_prefill_keys * model->base.prefill_key_ns * model->parts[COST_MODEL_PREFILL_KEYS].correction,
           decode_ns =
               shape->n_decode_keys * model->base.decode_key_ns * model->parts[COST_MODEL_DECODE_KEYS].correction;
    double rows_ns = predicted_ns - prefill_ns - decode_ns;
    int part = prefill_ns > decode_ns ? COST_MODEL_PREFILL_KEYS : COST_MODEL_DECODE_KEYS;
    *out_ns = fmax(prefill_ns, decode_ns);
    if (rows_ns < *out_ns) return part;
    *out_ns = rows_ns;
    return regime_of(shape->n_rows);
}

/* Whatever the steps of late consist of. */
static void note_slowness(struct cost_model *model, const struct step_shape *shape, int64_t predicted_ns) {
    double base_ns = (double)step_cost_ns(&model->base, shape), now = (double)predicted_ns / base_ns;
    if (base_ns > 0) model->slowness += (now - model->slowness) * base_ns / (base_ns + SLOWNESS_NS);
}

void cost_model_observe(struct cost_model *model, const struct step_shape *shape, int64_t predicted_ns,
                        int64_t measured_ns) {
    if (predicted_ns <= 0 || measured_ns <= 0 || shape->n_rows < 1) return;
    note_slowness(model, shape, predicted_ns);
    double part_ns;
    int i = largest_part(model, shape, (double)predicted_ns, &part_ns);
    double *recent = model->parts[i].recent;
    recent[model->parts[i].n_seen % COST_MODEL_N_RECENT] =
        clamp(((double)measured_ns - (double)predicted_ns) / part_ns + 1, 1 / MAX_ODD, MAX_ODD);
    /* Counts on to twice the window and back, so that it never wraps. */
    if (++model->parts[i].n_seen == 2 * COST_MODEL_N_RECENT) model->parts[i].n_seen = COST_MODEL_N_RECENT;
    if (model->parts[i].n_seen < COST_MODEL_N_RECENT) return;
    double moved = model->parts[i].correction * (1 + GAIN * (median_of(recent) - 1));
    model->parts[i].correction = clamp(moved, 1 / MAX_CORRECTION, MAX_CORRECTION);
}

/* ---- use ---- */

int64_t cost_model_ttft_ns(const struct step_cost *cost, int n_prompt, int n_cached, int max_chunk,
                           const struct step_limits *limits) {
    const struct step_shape empty = {0};
    int64_t ns = 0, limit_ns = limits ? step_bound_ns(cost, limits, &empty, STEP_PROMPT) : STEP_COST_MAX_NS;
    for (int from = n_cached; from < n_prompt && ns < STEP_COST_MAX_NS;) {
        struct step_shape shape = {0};
        int most = at_most(n_prompt - from, max_chunk);
        int n = step_cost_max_prefill(cost, &empty, from, most, n_prompt - 1, limit_ns);
        int to = from + (n > 1 ? n : 1); /* a prompt always advances */
        step_cost_add_prefill(cost, &shape, from, to, to == n_prompt);
        ns += step_cost_ns(cost, &shape);
        from = to;
    }
    return ns < STEP_COST_MAX_NS ? ns : STEP_COST_MAX_NS;
}
