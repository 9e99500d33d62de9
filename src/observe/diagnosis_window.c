#include "observe/diagnosis_window.h"

#include <stdio.h>
#include <string.h>

#include "base/rng.h"

#define MS 1e6
#define LATE_FLOOR_MS 50 /* less is felt by nobody */
#define MIN_GAPS 4       /* of an answer that tells how fast decode is */
#define SEED 0x6b7669636bull

void diagnosis_window_init(struct diagnosis_window *window, const struct diagnosis_window_options *options) {
    REQUIRE(options->bucket_ns > 0 && options->n_recent >= 1 && options->n_recent <= DIAGNOSIS_WINDOW_MAX_RECENT &&
            options->n_baseline >= 1 && options->n_baseline <= DIAGNOSIS_WINDOW_MAX_BASELINE);
    memset(window, 0, sizeof *window);
    window->options = *options;
    window->recent = (struct diagnosis_span){window->recent_buckets, options->n_recent, 0, 0};
    window->baseline = (struct diagnosis_span){window->baseline_buckets, options->n_baseline, 0, 0};
}

/* ---- keys ---- */

static double tokens_of_key(const struct diagnosis_window *window, int key) {
    double n = window->open.sums.key_requests[key];
    for (int i = 0; i < window->recent.n; i++) n += window->recent_buckets[i].sums.key_requests[key];
    for (int i = 0; i < window->baseline.n; i++) n += window->baseline_buckets[i].sums.key_requests[key];
    return n;
}

/* The place for a new key: a free one, or that of a key which nothing in sight has used; else the last one. */
static int place_key(struct diagnosis_window *window, const char *name) {
    int last = DIAGNOSIS_WINDOW_MAX_KEYS - 1, key = window->n_keys;
    if (key == last)
        for (key = 0; key < last && tokens_of_key(window, key) > 0;) key++;
    if (key < last) snprintf(window->key_names[key], DIAGNOSIS_WINDOW_KEY_BYTES, "%s", name);
    if (key == window->n_keys && key < last) window->n_keys++;
    snprintf(window->key_names[last], DIAGNOSIS_WINDOW_KEY_BYTES, "others");
    return key;
}

static int key_of(struct diagnosis_window *window, const char *name) {
    if (!name) name = "";
    for (int i = 0; i < window->n_keys; i++)
        if (strncmp(window->key_names[i], name, DIAGNOSIS_WINDOW_KEY_BYTES - 1) == 0) return i;
    return place_key(window, name);
}

/* ---- what comes in ---- */

/* Milliseconds of each part that lie before the first token. */
static void parts_of_ttft(const struct diagnosis_record *record, double out_ms[N_PHASES]) {
    double rest_ms = (double)record->ttft_ns / MS;
    for (int i = 0; i < N_PHASES; i++) {
        out_ms[i] = diagnosis_record_is_before((enum phase)i) ? (double)record->part_ns[i] / MS : 0;
        if (i != PHASE_PREEMPTED) rest_ms -= out_ms[i];
    }
    if (rest_ms < 0) rest_ms = 0;
    if (out_ms[PHASE_PREEMPTED] > rest_ms) out_ms[PHASE_PREEMPTED] = rest_ms; /* the rest came after the first token */
}

static void add_promises(struct diagnosis_sums *sums, const struct diagnosis_record *record, int64_t slo_ns) {
    double ttft_ms = (double)record->ttft_ns / MS, promised_ms = (double)record->promised_ns / MS;
    if (record->promised_ns) {
        sums->n_promised++;
        sums->n_late += ttft_ms > ADMISSION_LATE_FACTOR * promised_ms && ttft_ms > promised_ms + LATE_FLOOR_MS;
    }
    if (slo_ns) {
        sums->n_promised_slo++;
        sums->n_missed_slo += record->ttft_ns > slo_ns;
    }
}

static void add_sums(struct diagnosis_sums *sums, const struct diagnosis_record *record, int key) {
    double parts_ms[N_PHASES], n_computed = record->n_prompt - record->n_cached;
    parts_of_ttft(record, parts_ms);
    sums->n_run++;
    sums->ttft_ms += (double)record->ttft_ns / MS;
    for (int i = 0; i < N_PHASES; i++) sums->part_ms[i] += parts_ms[i];
    sums->n_prompt_tokens += record->n_prompt;
    sums->n_cached_tokens += record->n_cached;
    sums->n_computed_tokens += n_computed;
    sums->n_output_tokens += record->n_output;
    sums->prefill_own_ms += (double)record->part_ns[PHASE_PREFILL_OWN] / MS;
    sums->decode_ms += (double)record->part_ns[PHASE_DECODE] / MS;
    sums->blocked_ms += (double)record->part_ns[PHASE_BLOCKED] / MS;
    sums->n_blocked += (double)record->part_ns[PHASE_BLOCKED] / MS >= DIAGNOSIS_WINDOW_BLOCKED_MS;
    sums->key_tokens[key] += n_computed;
}

static float ms_of(int64_t ns) {
    return (float)((double)ns / MS);
}

static struct diagnosis_kept kept_of(const struct diagnosis_record *record, int key) {
    const int64_t *part_ns = record->part_ns;
    int n_gaps = record->n_choices == 1 ? record->n_output - 1 : 0;
    struct diagnosis_kept kept = {.key = key};
    kept.of[DIAGNOSIS_TTFT] = ms_of(record->ttft_ns);
    kept.of[DIAGNOSIS_ITL] = n_gaps >= MIN_GAPS ? ms_of(part_ns[PHASE_DECODE]) / (float)n_gaps : -1;
    kept.of[DIAGNOSIS_READ] = ms_of(part_ns[PHASE_READ]);
    kept.of[DIAGNOSIS_PREPROCESS] = ms_of(part_ns[PHASE_PREPROCESS]);
    kept.of[DIAGNOSIS_TEXT] = ms_of(part_ns[PHASE_TEXT_QUEUE] + part_ns[PHASE_TEMPLATE] + part_ns[PHASE_TOKENIZE]);
    kept.of[DIAGNOSIS_WAIT] = ms_of(part_ns[PHASE_QUEUE] + part_ns[PHASE_PREFILL_LOST]);
    kept.of[DIAGNOSIS_PROMPT] = (float)record->n_prompt;
    kept.of[DIAGNOSIS_COMPUTED] = (float)(record->n_prompt - record->n_cached);
    kept.of[DIAGNOSIS_HIT] = record->n_prompt > 0 ? (float)record->n_cached / (float)record->n_prompt : -1;
    kept.of[DIAGNOSIS_CONTEXT] = (float)record->n_prompt + (float)record->n_output;
    return kept;
}

/* Every request of the bucket is equally likely to be kept (reservoir sampling, Vitter 1985, algorithm R). */
static void keep(struct diagnosis_window *window, const struct diagnosis_kept *kept) {
    struct diagnosis_bucket *bucket = &window->open;
    int at = bucket->n_seen++;
    if (at >= DIAGNOSIS_WINDOW_MAX_KEPT) at = (int)(rng_uniform(SEED, 0, (uint32_t)window->n_drawn++) * bucket->n_seen);
    if (at < DIAGNOSIS_WINDOW_MAX_KEPT) bucket->kept[at] = *kept;
}

void diagnosis_window_note(struct diagnosis_window *window, const struct diagnosis_record *record) {
    struct diagnosis_sums *sums = &window->open.sums;
    int key = key_of(window, record->key);
    sums->key_requests[key]++;
    if (record->refusal != ADMISSION_ADMITTED) sums->n_refused_by[record->refusal]++;
    if (!record->was_run) return;
    struct diagnosis_kept kept = kept_of(record, key);
    add_sums(sums, record, key);
    add_promises(sums, record, window->options.slo_ttft_ns[record->class_]);
    keep(window, &kept);
}

/* What a request that waits could have of the cache. */
static void sample_room(struct diagnosis_sums *sums, const struct engine_stats *stats, int n_waiting) {
    const struct engine_group_stats *group = &stats->groups[0];
    if (n_waiting == 0 || group->n_held == 0 || group->n_held_slots == 0) return;
    double block_tokens = (double)group->n_held_slots / group->n_held;
    sums->n_tight++;
    sums->free_tokens += (double)(group->n_blocks - group->n_held) * block_tokens;
}

void diagnosis_window_sample(struct diagnosis_window *window, const struct engine_stats *stats) {
    struct diagnosis_sums *sums = &window->open.sums;
    const struct engine_stats *last = &window->last;
    const struct engine_group_stats *group = &stats->groups[0];
    struct engine_class_stats all = engine_stats_all(stats);
    sums->n_samples++;
    sums->running += all.n_running;
    sums->waiting += all.n_waiting;
    sums->held_share += group->n_blocks > 0 ? (double)group->n_held / group->n_blocks : 0;
    sample_room(sums, stats, all.n_waiting);
    if (window->has_last &&
        stats->n_steps >= last->n_steps) { /* fewer: another process has taken its place in the log */
        sums->n_preempted += (double)stats->n_preempted - (double)last->n_preempted;
        for (int i = 0; i < ENGINE_STATS_N_MISSES; i++)
            sums->n_misses[i] += (double)stats->n_misses[i] - (double)last->n_misses[i];
        sums->n_rows += (double)stats->n_rows - (double)last->n_rows;
        sums->n_prefill_rows += (double)stats->n_prefill_rows - (double)last->n_prefill_rows;
        sums->n_steps += (double)stats->n_steps - (double)last->n_steps;
        sums->steps_ms += ((double)stats->steps_ns - (double)last->steps_ns) / MS;
    }
    window->last = *stats;
    window->has_last = true;
}

/* ---- time ---- */

static void push(struct diagnosis_span *span, const struct diagnosis_bucket *bucket) {
    if (span->n == span->max) {
        span->buckets[span->first] = *bucket;
        span->first = (span->first + 1) % span->max;
    } else {
        span->buckets[span->n++] = *bucket;
    }
}

/* The oldest recent bucket leaves. */
static void retire(struct diagnosis_window *window) {
    const struct diagnosis_bucket *oldest = &window->recent.buckets[window->recent.first];
    window->n_ill = oldest->is_ill ? window->n_ill + 1 : 0;
    if (oldest->n_seen > 0 && (!oldest->is_ill || window->n_ill > window->options.n_ill))
        push(&window->baseline, oldest);
}

bool diagnosis_window_is_full(struct diagnosis_window *window, int64_t now_ns) {
    if (!window->open_ns) window->open_ns = now_ns;
    return now_ns - window->open_ns >= window->options.bucket_ns;
}

void diagnosis_window_close(struct diagnosis_window *window, int64_t now_ns) {
    int64_t n_passed = (now_ns - window->open_ns) / window->options.bucket_ns;
    window->open_ns += n_passed * window->options.bucket_ns;
    if (n_passed > window->options.n_recent + 1) n_passed = window->options.n_recent + 1;
    for (int64_t i = 0; i < n_passed; i++) {
        if (window->recent.n == window->recent.max) retire(window);
        push(&window->recent, &window->open);
        memset(&window->open, 0, sizeof window->open);
    }
}

void diagnosis_window_mark_ill(struct diagnosis_window *window) {
    struct diagnosis_span *recent = &window->recent;
    if (recent->n > 0) recent->buckets[(recent->first + recent->n - 1) % recent->max].is_ill = true;
}

/* ---- what comes out ---- */

struct diagnosis_sums diagnosis_window_sums(const struct diagnosis_span *span) {
    double sums[sizeof(struct diagnosis_sums) / sizeof(double)] = {0};
    struct diagnosis_sums out;
    for (int i = 0; i < span->n; i++) {
        double one[sizeof sums / sizeof sums[0]];
        memcpy(one, &span->buckets[i].sums, sizeof one);
        for (size_t k = 0; k < sizeof sums / sizeof sums[0]; k++) sums[k] += one[k];
    }
    memcpy(&out, sums, sizeof out);
    return out;
}

/* The k-th smallest of n values, from 0, which change places.   Source: Hoare 1961, "find". */
static float select_kth(float *values, int n, int k) {
    int low = 0, high = n - 1;
    while (low < high) {
        float pivot = values[low + (high - low) / 2];
        int i = low, j = high;
        while (i <= j) {
            while (values[i] < pivot) i++;
            while (values[j] > pivot) j--;
            if (i > j) break;
            float other = values[i];
            values[i++] = values[j];
            values[j--] = other;
        }
        if (k <= j)
            high = j;
        else if (k >= i)
            low = i;
        else
            break;
    }
    return values[k];
}

static int n_kept(const struct diagnosis_bucket *bucket) {
    return bucket->n_seen < DIAGNOSIS_WINDOW_MAX_KEPT ? bucket->n_seen : DIAGNOSIS_WINDOW_MAX_KEPT;
}

double diagnosis_window_quantile(struct diagnosis_window *window, const struct diagnosis_span *span,
                                 enum diagnosis_quantity quantity, double q, int max_prompt, int *out_n) {
    int n = 0;
    for (int i = 0; i < span->n; i++)
        for (int k = 0; k < n_kept(&span->buckets[i]); k++) {
            const float *of = span->buckets[i].kept[k].of;
            if (of[quantity] >= 0 && (!max_prompt || of[DIAGNOSIS_PROMPT] < (float)max_prompt))
                window->scratch[n++] = of[quantity];
        }
    if (out_n) *out_n = n;
    return n > 0 ? (double)select_kth(window->scratch, n, (int)(q * (n - 1) + 0.5)) : 0;
}

struct diagnosis_long diagnosis_window_long(const struct diagnosis_span *span, int min_prompt) {
    double tokens[DIAGNOSIS_WINDOW_MAX_KEYS] = {0}, n = 0, n_long = 0, n_tokens = 0, n_long_tokens = 0;
    struct diagnosis_long out = {0};
    for (int i = 0; i < span->n; i++)
        for (int k = 0; k < n_kept(&span->buckets[i]); k++) {
            const struct diagnosis_kept *kept = &span->buckets[i].kept[k];
            double n_computed = (double)kept->of[DIAGNOSIS_COMPUTED];
            n++;
            n_tokens += n_computed;
            if (kept->of[DIAGNOSIS_PROMPT] < (float)min_prompt) continue;
            n_long++;
            n_long_tokens += n_computed;
            tokens[kept->key] += n_computed;
            if (tokens[kept->key] > tokens[out.key]) out.key = kept->key;
        }
    out.request_share = n > 0 ? n_long / n : 0;
    out.token_share = n_tokens > 0 ? n_long_tokens / n_tokens : 0;
    return out;
}
