#include "bench/kv_eval.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/bounds.h"
#include "support/test.h"

/* ---- tasks ---- */

static char *prompt_of(enum kv_task task, int case_idx) {
    struct str text;
    str_init(&text, 65536);
    assert_int_equal(kv_tasks_prompt(task, case_idx, &text), STATUS_OK);
    return str_take(&text);
}

static void prompts_are_their_numbers(void **state) {
    (void)state;
    for (int task = 0; task < KV_N_TASKS; task++) {
        assert_in_range(kv_tasks_n_cases((enum kv_task)task), 4, KV_TASKS_MAX_CASES);
        for (int i = 0; i < kv_tasks_n_cases((enum kv_task)task); i++) {
            char *one = prompt_of((enum kv_task)task, i), *again = prompt_of((enum kv_task)task, i);
            assert_string_equal(one, again);
            for (int j = 0; j < i; j++) {
                char *other = prompt_of((enum kv_task)task, j);
                assert_string_not_equal(one, other);
                free(other);
            }
            assert_false(kv_tasks_is_right((enum kv_task)task, i, ""));
            assert_false(kv_tasks_is_right((enum kv_task)task, i, " I cannot say.\n"));
            free(one);
            free(again);
        }
    }
}

static void json_must_parse(void **state) {
    (void)state;
    assert_true(kv_tasks_is_right(KV_TASK_JSON, 0, " {\"name\": \"A\", \"likes\": [1, {}]}\n\nText: and so on"));
    assert_false(kv_tasks_is_right(KV_TASK_JSON, 0, " {\"name\": \"A\"\n}"));
    assert_false(kv_tasks_is_right(KV_TASK_JSON, 0, " {\"name\": \"A\", \"name\": \"B\"}"));
    assert_false(kv_tasks_is_right(KV_TASK_JSON, 0, " [1]"));
}

/* Reads the arguments back from what is asked: of the weather, the third kind of call. */
static void arguments_must_be_those_asked_for(void **state) {
    (void)state;
    char *prompt = prompt_of(KV_TASK_TOOL, 2), city[32], answer[128];
    const char *asked = NULL;
    for (const char *at = prompt; (at = strstr(at, "weather in ")); at++) asked = at;
    int days;
    assert_non_null(asked);
    assert_int_equal(sscanf(asked, "weather in %31s for the next %d days", city, &days), 2);
    snprintf(answer, sizeof answer, " {\"days\": %d, \"tool\": \"get_weather\", \"city\": \"%s\"}\n", days, city);
    assert_true(kv_tasks_is_right(KV_TASK_TOOL, 2, answer));
    snprintf(answer, sizeof answer, " {\"days\": \"%d\", \"tool\": \"get_weather\", \"city\": \"%s\"}\n", days, city);
    assert_false(kv_tasks_is_right(KV_TASK_TOOL, 2, answer));
    snprintf(answer, sizeof answer, " {\"days\": %d, \"tool\": \"get_weather\", \"city\": \"%s\", \"x\": 1}\n", days,
             city);
    assert_false(kv_tasks_is_right(KV_TASK_TOOL, 2, answer));
    snprintf(answer, sizeof answer, " {\"days\": %d, \"tool\": \"get_weather\", \"city\": \"%s\"}\n", days + 1, city);
    assert_false(kv_tasks_is_right(KV_TASK_TOOL, 2, answer));
    free(prompt);
}

static void a_passage_names_the_place(void **state) {
    (void)state;
    for (int i = 0; i < kv_tasks_n_cases(KV_TASK_PASSAGE); i++) {
        char *prompt = prompt_of(KV_TASK_PASSAGE, i), who[32], color[32], fact[128], place[32], answer[128];
        const char *question = NULL, *passage = NULL;
        for (const char *at = prompt; (at = strstr(at, "Question: ")); at++) question = at;
        for (const char *at = prompt; (at = strstr(at, "Passage: ")); at++) passage = at;
        assert_int_equal(sscanf(question, "Question: Where does %31s keep the %31s box?", who, color), 2);
        snprintf(fact, sizeof fact, "%s keeps the %s box in the ", who, color);
        const char *told = strstr(passage, fact);
        assert_non_null(told);
        assert_int_equal(sscanf(told + strlen(fact), "%31[a-z].", place), 1);
        snprintf(answer, sizeof answer, " %s.\n", place);
        assert_true(kv_tasks_is_right(KV_TASK_PASSAGE, i, answer));
        const char *other = strstr(passage, "box in the ") == told + strlen(fact) - strlen("box in the ")
                                ? strstr(told + strlen(fact), "box in the ")
                                : strstr(passage, "box in the ");
        assert_int_equal(sscanf(other, "box in the %31[a-z].", place), 1);
        snprintf(answer, sizeof answer, " %s.\n", place);
        assert_false(kv_tasks_is_right(KV_TASK_PASSAGE, i, answer));
        free(prompt);
    }
}

/* Each needle is asked for somewhere, so that all depths take part. */
static void needles_lie_at_several_depths(void **state) {
    (void)state;
    double least = 1, most = 0;
    for (int i = 0; i < kv_tasks_n_cases(KV_TASK_NEEDLE_LONG); i++) {
        char *prompt = prompt_of(KV_TASK_NEEDLE_LONG, i), who[32], fact[64];
        int number;
        const char *question = strstr(prompt, "Question: ");
        assert_int_equal(sscanf(question, "Question: What is the secret number of %31[A-Za-z]?", who), 1);
        snprintf(fact, sizeof fact, "The secret number of %s is ", who);
        const char *told = strstr(prompt, fact);
        assert_true(told && told < question);
        assert_int_equal(sscanf(told + strlen(fact), "%d", &number), 1);
        char answer[64];
        snprintf(answer, sizeof answer, " %d.\n", number);
        assert_true(kv_tasks_is_right(KV_TASK_NEEDLE_LONG, i, answer));
        snprintf(answer, sizeof answer, " %d1.\n", number);
        assert_false(kv_tasks_is_right(KV_TASK_NEEDLE_LONG, i, answer));
        snprintf(answer, sizeof answer, " %d.\n", number + 1);
        assert_false(kv_tasks_is_right(KV_TASK_NEEDLE_LONG, i, answer));
        double depth = (double)(told - prompt) / (double)strlen(prompt);
        least = fmin(least, depth), most = fmax(most, depth);
        free(prompt);
    }
    assert_true(least < 0.3 && most > 0.7);
}

/* ---- verdict ---- */

/* All tasks solved by both. */
static struct kv_eval perfect(void) {
    struct kv_eval eval = {.mean_kl = 0.001, .by_float.nll = 2, .by_type.nll = 2.001};
    for (int task = 0; task < KV_N_TASKS; task++) {
        eval.by_float.n_cases[task] = eval.by_type.n_cases[task] = kv_tasks_n_cases((enum kv_task)task);
        for (int i = 0; i < KV_TASKS_MAX_CASES; i++)
            eval.by_float.is_right[task][i] = eval.by_type.is_right[task][i] = true;
    }
    return eval;
}

static bool passes(const struct kv_eval *eval) {
    struct kv_eval_result result;
    kv_eval_judge(eval, &result);
    return result.is_passed;
}

static void each_measure_can_fail_it(void **state) {
    (void)state;
    struct kv_eval eval = perfect();
    assert_true(passes(&eval));
    eval.mean_kl = 1.01 * KV_EVAL_MAX_KL;
    assert_false(passes(&eval));
    eval.mean_kl = NAN;
    assert_false(passes(&eval));
    eval = perfect();
    eval.by_type.nll = 2 + 1.01 * log(KV_EVAL_MAX_PPL_RATIO);
    assert_false(passes(&eval));
    eval.by_type.nll = NAN;
    assert_false(passes(&eval));
    for (int task = 0; task < KV_N_TASKS; task++) {
        eval = perfect();
        eval.by_type.is_right[task][3] = false; /* one case may be lost */
        assert_true(passes(&eval));
        eval.by_type.is_right[task][1] = false;
        assert_false(passes(&eval));
    }
    eval = perfect(); /* nor one of each task: together that is too much */
    for (int task = 0; task < KV_N_TASKS; task++) eval.by_type.is_right[task][0] = false;
    assert_false(passes(&eval));
}

static void what_float_cannot_do_counts_not(void **state) {
    (void)state;
    struct kv_eval_result result;
    struct kv_eval eval = perfect();
    int n = kv_tasks_n_cases(KV_TASK_PASSAGE), n_all = 0;
    for (int task = 0; task < KV_N_TASKS; task++) n_all += kv_tasks_n_cases((enum kv_task)task);
    for (int i = 0; i < n; i++) {
        eval.by_float.is_right[KV_TASK_PASSAGE][i] = 2 * i < n; /* half: it counts, and much is lost */
        eval.by_type.is_right[KV_TASK_PASSAGE][i] = false;
    }
    kv_eval_judge(&eval, &result);
    assert_true(result.tasks[KV_TASK_PASSAGE].is_counted && !result.is_passed);
    eval.by_float.is_right[KV_TASK_PASSAGE][0] = false; /* less than half */
    eval.by_float.n_cases[KV_TASK_NEEDLE_LONG] = 0;     /* longer than the context */
    kv_eval_judge(&eval, &result);
    assert_false(result.tasks[KV_TASK_PASSAGE].is_counted || result.tasks[KV_TASK_NEEDLE_LONG].is_counted);
    assert_true(result.is_passed);
    assert_int_equal(result.all.n_cases, n_all - n - kv_tasks_n_cases(KV_TASK_NEEDLE_LONG));
}

static void bounds_are_those_of_the_file(void **state) {
    (void)state;
    assert_true(bounds_value("kv_eval_ppl_ratio") == KV_EVAL_MAX_PPL_RATIO);
    assert_true(bounds_value("kv_eval_kl") == KV_EVAL_MAX_KL);
    assert_true(bounds_value("kv_eval_task_loss") == KV_EVAL_MAX_LOSS);
    assert_true(bounds_value("kv_eval_all_loss") == KV_EVAL_MAX_ALL_LOSS);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(prompts_are_their_numbers),         cmocka_unit_test(json_must_parse),
        cmocka_unit_test(arguments_must_be_those_asked_for), cmocka_unit_test(a_passage_names_the_place),
        cmocka_unit_test(needles_lie_at_several_depths),     cmocka_unit_test(each_measure_can_fail_it),
        cmocka_unit_test(what_float_cannot_do_counts_not),   cmocka_unit_test(bounds_are_those_of_the_file)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
