#include "observe/phase_metrics.h"

#include "observe/metric_table.h"

#define N_OF(array) ((int)(sizeof(array) / sizeof((array)[0])))

/* Seconds. */
static const double phase_bounds[] = {.0001, .0002, .0005, .001, .002, .005, .01, .02, .05, .1,
                                      .2,    .5,    1,     2,    5,    10,   20,  60,  300};
static const double unaccounted_bounds[] = {.000001, .00001, .0001, .0005, .001, .002, .01, .1, 1};
static const double ttft_bounds[] = {.001, .002, .004, .006, .008, .01, .015, .02, .03, .04, .05, .06, .08, .1, .15,
                                     .2,   .3,   .4,   .5,   .75,  1,   1.5,  2,   3,   5,   10,  20,  40,  80, 320};
static const double inter_token_bounds[] = {.0005, .001, .0015, .002, .0025, .003, .004, .005, .006, .007, .008,
                                            .009,  .01,  .012,  .015, .02,   .025, .03,  .04,  .05,  .06,  .075,
                                            .1,    .15,  .2,    .3,   .5,    1,    2,    5,    10};
static const double error_bounds[] = {.001, .002, .005, .01, .02, .05, .1, .2, .5, 1, 2, 5, 10, 20, 60};

void phase_metrics_init(struct phase_metrics *metrics) {
    for (int i = 0; i < N_PHASES; i++) histogram_init(&metrics->phases[i], phase_bounds, N_OF(phase_bounds));
    histogram_init(&metrics->unaccounted, unaccounted_bounds, N_OF(unaccounted_bounds));
    for (int c = 0; c < REQUEST_N_CLASSES; c++) {
        histogram_init(&metrics->ttft[c], ttft_bounds, N_OF(ttft_bounds));
        histogram_init(&metrics->inter_token[c], inter_token_bounds, N_OF(inter_token_bounds));
        for (int d = 0; d < PHASE_METRICS_N_DIRECTIONS; d++)
            histogram_init(&metrics->errors[c][d], error_bounds, N_OF(error_bounds));
    }
}

static void add_ns(struct histogram *histogram, int64_t ns) {
    histogram_add(histogram, (double)ns / 1e9, 1);
}

void phase_metrics_finish(struct phase_metrics *metrics, const struct request *request) {
    const struct phase_stats *stats = &request->stats;
    int64_t received_ns = stats->received_ns ? stats->received_ns : stats->submitted_ns;
    int64_t unaccounted_ns = phase_stats_unaccounted_ns(stats);
    for (int i = 0; i < N_PHASES; i++) add_ns(&metrics->phases[i], stats->part_ns[i]);
    add_ns(&metrics->unaccounted, unaccounted_ns < 0 ? -unaccounted_ns : unaccounted_ns);
    if (!stats->first_token_ns) return;
    add_ns(&metrics->ttft[request->class_], stats->first_token_ns - received_ns);
    if (!stats->predicted_ns) return;
    int64_t late_ns = stats->first_token_ns - stats->predicted_ns;
    if (late_ns > 0)
        add_ns(&metrics->errors[request->class_][PHASE_METRICS_LATE], late_ns);
    else
        add_ns(&metrics->errors[request->class_][PHASE_METRICS_EARLY], -late_ns);
}

void phase_metrics_gap(struct phase_metrics *metrics, enum request_class class_, int64_t gap_ns) {
    add_ns(&metrics->inter_token[class_], gap_ns);
}

/* ---- text ---- */

static void write_classes(struct prom_text *text, enum metric metric, const struct histogram *of_class) {
    metric_table_begin(text, metric);
    for (int c = 0; c < REQUEST_N_CLASSES; c++) {
        prom_text_labels(text, (const char *const[]){"class", message_class_name((enum request_class)c), NULL});
        prom_text_histogram(text, &of_class[c]);
    }
}

static void write_errors(const struct phase_metrics *metrics, struct prom_text *text) {
    static const char *const directions[PHASE_METRICS_N_DIRECTIONS] = {"early", "late"};
    metric_table_begin(text, METRIC_PREDICTION_ERROR);
    for (int c = 0; c < REQUEST_N_CLASSES; c++)
        for (int d = 0; d < PHASE_METRICS_N_DIRECTIONS; d++) {
            prom_text_labels(text, (const char *const[]){"class", message_class_name((enum request_class)c),
                                                         "direction", directions[d], NULL});
            prom_text_histogram(text, &metrics->errors[c][d]);
        }
}

void phase_metrics_write(const struct phase_metrics *metrics, int64_t decode_lost_ns, struct prom_text *text) {
    metric_table_begin(text, METRIC_PHASE);
    for (int i = 0; i < N_PHASES; i++) {
        prom_text_labels(text, (const char *const[]){"phase", phase_stats_name((enum phase)i), NULL});
        prom_text_histogram(text, &metrics->phases[i]);
    }
    metric_table_histogram(text, METRIC_UNACCOUNTED, &metrics->unaccounted);
    write_classes(text, METRIC_TTFT, metrics->ttft);
    write_classes(text, METRIC_INTER_TOKEN, metrics->inter_token);
    metric_table_begin(text, METRIC_INTERFERENCE);
    prom_text_sample(text, "phase", "prefill", metrics->phases[PHASE_PREFILL_LOST].sum);
    prom_text_sample(text, "phase", "decode", (double)decode_lost_ns / 1e9);
    write_errors(metrics, text);
}
