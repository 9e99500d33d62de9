#include "cmd/eval_kv.h"

#include <stdio.h>
#include <string.h>

#include <jansson.h>

#include "bench/kv_eval.h"
#include "cmd/cmd.h"
#include "cmd/cmd_engine.h"
#include "cmd/kv_record.h"

#define REFERENCE_TYPE "f16"
#define MAX_LOGIT_ROWS 64

/* ---- both runs ---- */

static enum status run_type(struct kv_eval *eval, const struct options *options, const char *kv_type, const char *model,
                            struct cmd_engine *opened, struct status_note *note) {
    struct options typed = *options;
    struct cmd_engine_needs needs = {.max_sequences = 1, .max_logit_rows = MAX_LOGIT_ROWS};
    struct tokenizer *tokenizer = NULL;
    bool is_reference = strcmp(kv_type, REFERENCE_TYPE) == 0;
    typed.kv_cache_dtype = kv_type;
    enum status status = cmd_engine_open(opened, model, &typed, &needs, note);
    if (status) return status;
    status = tokenizer_open(&tokenizer, opened->gguf, note);
    if (!status && is_reference) status = kv_eval_init(eval, engine_model(opened->engine)->n_vocab);
    if (!status) status = (is_reference ? kv_eval_reference : kv_eval_compare)(eval, opened->engine, tokenizer, note);
    tokenizer_close(&tokenizer);
    if (status) status_note_prefix(note, opened->path);
    return status;
}

/* ---- result ---- */

static json_t *task_json(const struct kv_eval_task_result *task, const char *name) {
    return json_pack("{s:s, s:i, s:i, s:i, s:b, s:b}", "task", name, "cases", task->n_cases, "right_float",
                     task->n_float, "right", task->n_type, "counted", (int)task->is_counted, "good",
                     (int)task->is_good);
}

static json_t *result_json(const struct kv_eval_result *result, const struct options *options) {
    json_t *tasks = json_array();
    for (int i = 0; i < KV_N_TASKS; i++)
        json_array_append_new(tasks, task_json(&result->tasks[i], kv_tasks_name((enum kv_task)i)));
    json_array_append_new(tasks, task_json(&result->all, "all that count"));
    return json_pack("{s:s, s:s, s:s, s:f, s:f, s:f, s:f, s:{s:f, s:f, s:f, s:f}, s:o, s:b}", "kv",
                     options->kv_cache_dtype, "reference_kv", REFERENCE_TYPE, "activations", options->activations,
                     "ppl_float", result->ppl_float, "ppl", result->ppl_type, "ppl_ratio", result->ppl_ratio, "mean_kl",
                     result->mean_kl, "bounds", "ppl_ratio", KV_EVAL_MAX_PPL_RATIO, "mean_kl", KV_EVAL_MAX_KL,
                     "task_loss", KV_EVAL_MAX_LOSS, "all_loss", KV_EVAL_MAX_ALL_LOSS, "tasks", tasks, "passed",
                     (int)result->is_passed);
}

static void print_task(const struct kv_eval_task_result *task, const char *name) {
    printf("%-26s %4d %9d %9d   ", name, task->n_cases, task->n_float, task->n_type);
    if (!task->n_cases)
        puts("not counted: longer than the context");
    else if (!task->is_counted)
        puts("not counted: " REFERENCE_TYPE " solves less than half");
    else
        puts(task->is_good ? "ok" : "FAIL");
}

static void print_table(const struct kv_eval_result *result, const struct options *options, const char *model) {
    printf("KV %s against " REFERENCE_TYPE ", %s, activations %s\n\n", options->kv_cache_dtype, model,
           options->activations);
    printf("%-26s %4s %9s %9s\n", "", "n", REFERENCE_TYPE, options->kv_cache_dtype);
    printf("%-26s %4s %9.3f %9.3f   x %.4f, at most %g: %s\n", "perplexity", "", result->ppl_float, result->ppl_type,
           result->ppl_ratio, KV_EVAL_MAX_PPL_RATIO, result->is_ppl_good ? "ok" : "FAIL");
    printf("%-26s %4s %9s %9.5f   at most %g: %s\n", "mean KL", "", "", result->mean_kl, KV_EVAL_MAX_KL,
           result->is_kl_good ? "ok" : "FAIL");
    for (int i = 0; i < KV_N_TASKS; i++) print_task(&result->tasks[i], kv_tasks_name((enum kv_task)i));
    if (result->all.is_counted)
        print_task(&result->all, "all that count");
    else
        puts("no task counts: perplexity and KL alone decide");
    printf("\na task counts where " REFERENCE_TYPE " solves at least half; it may lose %.0f %% of its cases or one, "
           "all together %.0f %%\n%s\n",
           100 * KV_EVAL_MAX_LOSS, 100 * KV_EVAL_MAX_ALL_LOSS, result->is_passed ? "PASS" : "FAIL");
}

/* Printed, and kept. */
static int report(const struct kv_eval *eval, const struct options *options, const char *model,
                  const struct cmd_engine *opened) {
    struct kv_eval_result result;
    struct status_note note = {0};
    char path[CACHE_DIR_MAX_BYTES];
    kv_eval_judge(eval, &result);
    json_t *root = result_json(&result, options);
    if (!root) return cmd_fail(NULL, STATUS_NOMEM, NULL);
    enum status status = kv_record_save(opened->gguf, opened->options.kv_dtype, result.is_passed, root, path, &note);
    if (!options->json) {
        print_table(&result, options, model);
    } else {
        json_dumpf(root, stdout, JSON_INDENT(2));
        putchar('\n');
    }
    json_decref(root);
    if (status) return cmd_fail("eval kv", status, &note);
    if (!options->json) printf("kept in %s\n", path);
    return result.is_passed ? 0 : CMD_EXIT_FAILURE;
}

int eval_kv_run(const struct options *options, const char *model) {
    struct kv_eval eval = {0};
    struct cmd_engine opened = {0};
    struct status_note note = {0};
    enum status status = run_type(&eval, options, REFERENCE_TYPE, model, &opened, &note);
    cmd_engine_close(&opened);
    if (!status) status = run_type(&eval, options, options->kv_cache_dtype, model, &opened, &note);
    int exit_code = status ? cmd_fail(NULL, status, &note) : report(&eval, options, model, &opened);
    cmd_engine_close(&opened);
    kv_eval_deinit(&eval);
    return exit_code;
}
