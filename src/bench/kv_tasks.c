#include "bench/kv_tasks.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include <jansson.h>

#include "base/rng.h"
#include "bench/words.h"

#define SEED 20
#define N_SHOTS 3      /* examples in front of a question */
#define SHOT_CASE 1000 /* their numbers: no question is one of them */
#define FILLER_SEED 21
#define N_NEEDLES 4 /* of which one is asked for */
#define N_DEPTHS 6
#define MAX_LINE_BYTES 256

static const char *const people[] = {"Anna", "Ben",  "Clara", "David", "Emma",  "Felix", "Greta", "Hugo",
                                     "Ida",  "Jack", "Karen", "Leo",   "Maria", "Nora",  "Oscar", "Paula"};
static const char *const cities[] = {"Oslo", "Rome", "Paris", "Berlin", "Madrid", "London", "Vienna", "Dublin"};
static const char *const places[] = {"kitchen", "garage", "garden", "attic", "cellar", "office", "bathroom", "hall"};
static const char *const colors[] = {"red", "blue", "green", "black", "white", "yellow", "brown", "grey"};
static const char *const things[] = {"tea", "chess", "music", "bread", "maps", "boats", "trains", "films"};

#define PICK(list, case_idx, field) list[draw(case_idx, field, (int)(sizeof(list) / sizeof(list)[0]))]

static int draw(int case_idx, int field, int n) {
    return (int)(rng_uniform(SEED, (uint32_t)case_idx, (uint32_t)field) * n);
}

static const struct {
    const char *name;
    int n_cases, max_new, n_words; /* n_words: of filler */
} tasks[KV_N_TASKS] = {
    [KV_TASK_JSON] = {"JSON is valid", 12, 48, 0},
    [KV_TASK_TOOL] = {"tool arguments are exact", 12, 48, 0},
    [KV_TASK_PASSAGE] = {"answer is in the passage", 12, 12, 0},
    [KV_TASK_NEEDLE_SHORT] = {"fact in 200 words", N_DEPTHS, 10, 200},
    [KV_TASK_NEEDLE_MIDDLE] = {"fact in 500 words", N_DEPTHS, 10, 500},
    [KV_TASK_NEEDLE_LONG] = {"fact in 1200 words", N_DEPTHS, 10, 1200},
};

const char *kv_tasks_name(enum kv_task task) {
    return tasks[task].name;
}

int kv_tasks_n_cases(enum kv_task task) {
    return tasks[task].n_cases;
}

int kv_tasks_max_new(enum kv_task task) {
    return tasks[task].max_new;
}

/* ---- JSON ---- */

static enum status put_person(int case_idx, bool has_answer, struct str *out) {
    const char *name = PICK(people, case_idx, 0), *city = PICK(cities, case_idx, 1);
    const char *first = PICK(things, case_idx, 2), *second = PICK(things, case_idx + 7, 3);
    int age = 18 + draw(case_idx, 4, 60);
    enum status status = str_append_fmt(out, "Text: %s is %d years old, lives in %s and likes %s and %s.\nJSON:", name,
                                        age, city, first, second);
    if (has_answer && !status)
        status =
            str_append_fmt(out, " {\"name\": \"%s\", \"age\": %d, \"city\": \"%s\", \"likes\": [\"%s\", \"%s\"]}\n\n",
                           name, age, city, first, second);
    return status;
}

/* ---- tools ---- */

/* The call that is right, on one line. */
static void write_call(int case_idx, char out[MAX_LINE_BYTES]) {
    const char *name = PICK(people, case_idx, 10), *city = PICK(cities, case_idx, 11);
    int hour = 7 + draw(case_idx, 12, 14), minute = 5 * draw(case_idx, 13, 12), n = 2 + draw(case_idx, 14, 7);
    switch (case_idx % 3) {
    case 0:
        snprintf(out, MAX_LINE_BYTES,
                 "{\"tool\": \"book_table\", \"city\": \"%s\", \"people\": %d, \"time\": \"%02d:%02d\"}", city, n, hour,
                 minute);
        break;
    case 1:
        snprintf(out, MAX_LINE_BYTES, "{\"tool\": \"set_alarm\", \"time\": \"%02d:%02d\", \"label\": \"%s\"}", hour,
                 minute, name);
        break;
    default:
        snprintf(out, MAX_LINE_BYTES, "{\"tool\": \"get_weather\", \"city\": \"%s\", \"days\": %d}", city, n);
        break;
    }
}

static enum status put_call(int case_idx, bool has_answer, struct str *out) {
    const char *name = PICK(people, case_idx, 10), *city = PICK(cities, case_idx, 11);
    int hour = 7 + draw(case_idx, 12, 14), minute = 5 * draw(case_idx, 13, 12), n = 2 + draw(case_idx, 14, 7);
    enum status status;
    char call[MAX_LINE_BYTES];
    if (case_idx % 3 == 0)
        status =
            str_append_fmt(out, "User: Book a table in %s for %d people at %02d:%02d.\nCall:", city, n, hour, minute);
    else if (case_idx % 3 == 1)
        status = str_append_fmt(out, "User: Set an alarm at %02d:%02d with the label %s.\nCall:", hour, minute, name);
    else
        status = str_append_fmt(out, "User: What is the weather in %s for the next %d days?\nCall:", city, n);
    write_call(case_idx, call);
    return status || !has_answer ? status : str_append_fmt(out, " %s\n\n", call);
}

/* ---- passages ---- */

#define N_FACTS 4

/* Where the thing of a fact is: all facts of a passage have places of their own. */
static const char *place_of(int case_idx, int fact) {
    return places[(draw(case_idx, 20, 8) + 2 * fact + (fact > 1)) % 8];
}

static int asked_fact(int case_idx) {
    return draw(case_idx, 21, N_FACTS);
}

static enum status put_passage(int case_idx, bool has_answer, struct str *out) {
    enum status status = str_append_text(out, "Passage:");
    const char *owners[N_FACTS], *box_colors[N_FACTS];
    for (int i = 0; i < N_FACTS && !status; i++) {
        owners[i] = people[(draw(case_idx, 22, 16) + 3 * i) % 16];
        box_colors[i] = colors[(draw(case_idx, 23, 8) + i) % 8];
        status =
            str_append_fmt(out, " %s keeps the %s box in the %s.", owners[i], box_colors[i], place_of(case_idx, i));
    }
    int asked = asked_fact(case_idx);
    if (!status)
        status = str_append_fmt(out, "\nQuestion: Where does %s keep the %s box?\nAnswer: %s keeps the %s box in the",
                                owners[asked], box_colors[asked], owners[asked], box_colors[asked]);
    if (has_answer && !status) status = str_append_fmt(out, " %s.\n\n", place_of(case_idx, asked));
    return status;
}

static bool names_the_place(int case_idx, const char *line) {
    for (int i = 0; i < N_FACTS; i++)
        if (!strstr(line, place_of(case_idx, i)) == (i == asked_fact(case_idx))) return false;
    return true;
}

/* ---- a fact in filler ---- */

static int secret_of(int case_idx, int needle) {
    return 1000 + draw(case_idx, 30 + needle, 9000);
}

static const char *keeper_of(int case_idx, int needle) {
    return people[(draw(case_idx, 29, 16) + 5 * needle) % 16];
}

/* Needles lie N_NEEDLES parts apart from one another; which one is asked for moves it through all depths. */
static int asked_needle(int case_idx) {
    return case_idx * N_NEEDLES / N_DEPTHS;
}

static enum status put_needles(enum kv_task task, int case_idx, struct str *out) {
    const int n_parts = N_NEEDLES + 1, n_words = tasks[task].n_words / n_parts;
    enum status status = str_append_text(out, "Notes:");
    for (int part = 0; part < n_parts && !status; part++) {
        uint32_t text = (uint32_t)((int)task * KV_TASKS_MAX_CASES + case_idx) * 8 + (uint32_t)part;
        status = words_append(out, FILLER_SEED, text, n_words);
        if (!status && part < N_NEEDLES)
            status = str_append_fmt(out, ".\nThe secret number of %s is %d.\n", keeper_of(case_idx, part),
                                    secret_of(case_idx, part));
    }
    if (status) return status;
    const char *keeper = keeper_of(case_idx, asked_needle(case_idx));
    return str_append_fmt(out, ".\n\nQuestion: What is the secret number of %s?\nAnswer: The secret number of %s is",
                          keeper, keeper);
}

/* ---- all ---- */

static enum status put(enum kv_task task, int case_idx, bool has_answer, struct str *out) {
    switch (task) {
    case KV_TASK_JSON: return put_person(case_idx, has_answer, out);
    case KV_TASK_TOOL: return put_call(case_idx, has_answer, out);
    default: return put_passage(case_idx, has_answer, out);
    }
}

enum status kv_tasks_prompt(enum kv_task task, int case_idx, struct str *out) {
    enum status status = STATUS_OK;
    if (tasks[task].n_words) return put_needles(task, case_idx, out);
    for (int shot = 0; shot < N_SHOTS && !status; shot++) status = put(task, SHOT_CASE + shot, true, out);
    return status ? status : put(task, case_idx, false, out);
}

static bool is_object(const char *line) {
    json_t *root = json_loads(line, JSON_REJECT_DUPLICATES, NULL);
    bool is_one = json_is_object(root);
    json_decref(root);
    return is_one;
}

static bool is_call(int case_idx, const char *line) {
    char call[MAX_LINE_BYTES];
    write_call(case_idx, call);
    json_t *want = json_loads(call, 0, NULL), *got = json_loads(line, JSON_REJECT_DUPLICATES, NULL);
    bool is_equal = want && got && json_equal(want, got);
    json_decref(want);
    json_decref(got);
    return is_equal;
}

/* The first number in the line. */
static bool is_secret(int case_idx, const char *line) {
    char want[16];
    snprintf(want, sizeof want, "%d", secret_of(case_idx, asked_needle(case_idx)));
    while (*line && !isdigit((unsigned char)*line)) line++;
    return strncmp(line, want, strlen(want)) == 0 && !isdigit((unsigned char)line[strlen(want)]);
}

bool kv_tasks_is_right(enum kv_task task, int case_idx, const char *answer) {
    char line[4 * MAX_LINE_BYTES];
    size_t n_bytes = strcspn(answer, "\n");
    if (n_bytes >= sizeof line) return false;
    memcpy(line, answer, n_bytes);
    line[n_bytes] = 0;
    switch (task) {
    case KV_TASK_JSON: return is_object(line);
    case KV_TASK_TOOL: return is_call(case_idx, line);
    case KV_TASK_PASSAGE: return names_the_place(case_idx, line);
    default: return is_secret(case_idx, line);
    }
}
