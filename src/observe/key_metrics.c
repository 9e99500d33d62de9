#include "observe/key_metrics.h"

#include <stdio.h>
#include <string.h>

#include "observe/metric_table.h"

/* Names of keys have no brackets. */
#define NO_NAME "(none)"
#define OTHERS "(other)"

static struct key_place *find(struct key_place *places, int n, const char *name) {
    for (int i = 0; i < n; i++)
        if (strcmp(places[i].name, name) == 0) return &places[i];
    return NULL;
}

static struct key_place *least(struct key_place *places, int n) {
    struct key_place *found = &places[0];
    for (int i = 1; i < n; i++)
        if (places[i].recent_tokens < found->recent_tokens) found = &places[i];
    return found;
}

static void add(struct key_counts *counts, int n_prefill_tokens, int n_output_tokens) {
    counts->n_requests++;
    counts->n_prefill_tokens += n_prefill_tokens;
    counts->n_output_tokens += n_output_tokens;
}

static void take_place(struct key_place *place, const char *name) {
    snprintf(place->name, sizeof place->name, "%s", name);
    place->counts = (struct key_counts){0};
}

/* The key's place among those that are watched: who comes anew takes over what the least has, so that a key with more
 * than its part of all tokens is surely there.   Source: Metwally et al., "Efficient computation of frequent and top-k
 * elements in data streams", 2005. */
static struct key_place *watch(struct key_metrics *metrics, const char *name) {
    struct key_place *place = find(metrics->watched, metrics->n_watched, name);
    if (place) return place;
    if (metrics->n_watched < KEY_METRICS_N_WATCHED)
        place = &metrics->watched[metrics->n_watched++];
    else
        place = least(metrics->watched, metrics->n_watched);
    take_place(place, name);
    place->inherited_tokens = place->recent_tokens;
    return place;
}

/* The key is shown from now on, and the least of the shown ones is watched, if the key costs more. */
static struct key_place *promote(struct key_metrics *metrics, struct key_place *watched) {
    struct key_place *place = least(metrics->shown, metrics->n_shown), leaving = *place;
    double own_tokens = watched->recent_tokens - watched->inherited_tokens;
    if (own_tokens <= place->recent_tokens) return NULL;
    take_place(place, watched->name);
    place->recent_tokens = own_tokens;
    take_place(watched, leaving.name);
    watched->recent_tokens = leaving.recent_tokens;
    watched->inherited_tokens = 0;
    return place;
}

static void halve(struct key_metrics *metrics, int n_tokens) {
    metrics->recent_tokens += n_tokens;
    if (metrics->recent_tokens < KEY_METRICS_HALVING_TOKENS) return;
    metrics->recent_tokens = 0;
    for (int i = 0; i < metrics->n_shown; i++) metrics->shown[i].recent_tokens /= 2;
    for (int i = 0; i < metrics->n_watched; i++) {
        metrics->watched[i].recent_tokens /= 2;
        metrics->watched[i].inherited_tokens /= 2;
    }
}

void key_metrics_count(struct key_metrics *metrics, const char *name, int n_prefill_tokens, int n_output_tokens) {
    if (!name || !name[0]) name = NO_NAME;
    int n_tokens = n_prefill_tokens + n_output_tokens;
    struct key_place *place = find(metrics->shown, metrics->n_shown, name);
    halve(metrics, n_tokens);
    if (!place && metrics->n_shown < KEY_METRICS_N_SHOWN) {
        place = &metrics->shown[metrics->n_shown++];
        take_place(place, name);
    }
    if (place) {
        place->recent_tokens += n_tokens;
    } else {
        struct key_place *watched = watch(metrics, name);
        watched->recent_tokens += n_tokens;
        place = promote(metrics, watched);
    }
    add(place ? &place->counts : &metrics->others, n_prefill_tokens, n_output_tokens);
}

static double count_of(const struct key_counts *counts, enum metric metric) {
    if (metric == METRIC_KEY_REQUESTS) return counts->n_requests;
    return metric == METRIC_KEY_PREFILL ? counts->n_prefill_tokens : counts->n_output_tokens;
}

void key_metrics_write(const struct key_metrics *metrics, struct prom_text *text) {
    static const enum metric families[] = {METRIC_KEY_REQUESTS, METRIC_KEY_PREFILL, METRIC_KEY_OUTPUT};
    for (size_t f = 0; f < sizeof families / sizeof families[0]; f++) {
        metric_table_begin(text, families[f]);
        for (int i = 0; i < metrics->n_shown; i++)
            prom_text_sample(text, "key", metrics->shown[i].name, count_of(&metrics->shown[i].counts, families[f]));
        prom_text_sample(text, "key", OTHERS, count_of(&metrics->others, families[f]));
    }
}
