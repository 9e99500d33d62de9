#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "api/batch_run.h"
#include "base/clock.h"
#include "cmd/cmd.h"
#include "cmd/cmd_chat.h"
#include "cmd/cmd_engine.h"
#include "cmd/cmd_model.h"
#include "cmd/kv_record.h"

#define FULL_SESSIONS 4 /* that many requests of the longest kind fit beside each other */
#define TURN_MS 50
#define SAY_NS INT64_C(2000000000)
#define SILENT_SAY_NS INT64_C(30000000000) /* where nobody watches */

struct job {
    const struct options *options;
    struct cmd_engine model;
    struct tokenizer *tokenizer;
    struct chat_template *chat_template; /* NULL: the model cannot chat */
    struct status_note chat_note;
    struct http_server *loop; /* listens nowhere */
    struct api_server api;
    struct batch_run run;
    const char *model_names[OPTIONS_MAX_LIST];
    char default_name[CMD_MODEL_MAX_PATH_BYTES];
    int64_t start_ns, said_ns;
    bool is_interrupted;
};

/* ---- what is said ---- */

static void say_progress(struct job *job, bool is_last) {
    const struct batch_counts *counts = &job->run.counts;
    int64_t now_ns = clock_now_ns();
    bool is_watched = isatty(STDERR_FILENO) == 1;
    if (!is_last && now_ns - job->said_ns < (is_watched ? SAY_NS : SILENT_SAY_NS)) return;
    job->said_ns = now_ns;
    double s = (double)(now_ns - job->start_ns) / 1e9;
    fprintf(stderr, "kvick: %d of %d lines", counts->n_done, counts->n_lines);
    if (counts->n_before) fprintf(stderr, " (%d before)", counts->n_before);
    fprintf(stderr, ", %d refused, %.1f s; %.0f prompt tokens/s (%.0f %% cached), %.0f answer tokens/s\n",
            counts->n_refused, s, (double)counts->n_prompt / s,
            counts->n_prompt ? 100 * (double)counts->n_cached / (double)counts->n_prompt : 0.0,
            (double)counts->n_completion / s);
}

/* ---- the loop ---- */

static void on_turn(void *owner) {
    struct job *job = owner;
    if (batch_run_turn(&job->run))
        http_server_stop(job->loop);
    else
        say_progress(job, false);
}

static void on_interrupt(void *owner) {
    struct job *job = owner;
    job->is_interrupted = true;
    batch_run_stop(&job->run);
}

static enum status open_loop(struct job *job, struct status_note *note) {
    struct http_limits limits = {.max_connections = 1}; /* nobody connects */
    struct http_handlers handlers = api_server_handlers(&job->api);
    struct http_tls tls = {NULL, NULL};
    enum status status = http_server_create(&job->loop, &limits, &tls, &handlers, note);
    if (!status && (http_server_on_signal(job->loop, SIGINT, on_interrupt, job) ||
                    http_server_on_signal(job->loop, SIGTERM, on_interrupt, job) ||
                    http_server_every(job->loop, TURN_MS, on_turn, job)))
        status = status_fail(note, STATUS_NOMEM, "cannot wait for signals");
    job->api.http = job->loop;
    return status;
}

static enum status open_api(struct job *job, struct status_note *note) {
    const struct options *options = job->options;
    struct api_options api = {.model_names = job->model_names,
                              .n_model_names = options->served_model_name.n_items,
                              .max_calls = (int)options->max_num_seqs,
                              .kv_dtype = options->kv_cache_dtype,
                              .block_tokens = (int)options->block_tokens,
                              .has_prefix_cache = !options->no_prefix_cache};
    for (int i = 0; i < options->served_model_name.n_items; i++)
        job->model_names[i] = options->served_model_name.items[i];
    cmd_model_name(job->model.path, job->default_name);
    if (api.n_model_names == 0) job->model_names[api.n_model_names++] = job->default_name;
    return api_server_init(&job->api, &api, note);
}

static enum status open_model(struct job *job, const char *model, struct status_note *note) {
    struct options options = *job->options;
    struct cmd_engine_needs needs = {.max_sequences = (int)options.max_num_seqs, .n_full = FULL_SESSIONS};
    options.context = options.max_model_len;
    enum status status = cmd_engine_open(&job->model, model, &options, &needs, note);
    if (!status) kv_record_warn(job->model.gguf, job->model.options.kv_dtype, model);
    if (!status) status = tokenizer_open(&job->tokenizer, job->model.gguf, note);
    /* Without a template the model still completes texts; a chat is told why it cannot. */
    if (!status && cmd_chat_template(job->model.gguf, &job->chat_template, &job->chat_note)) job->chat_template = NULL;
    return status;
}

static void close_all(struct job *job) {
    api_server_close(&job->api);
    http_server_destroy(&job->loop);
    chat_template_destroy(&job->chat_template);
    tokenizer_close(&job->tokenizer);
    cmd_engine_close(&job->model);
    api_server_deinit(&job->api);
    batch_run_close(&job->run);
}

static int end(struct job *job, enum status status, struct status_note *note) {
    struct batch_counts counts = job->run.counts;
    if (!status && job->run.status) {
        *note = job->run.note;
        status = job->run.status;
    }
    if (!status && job->is_interrupted && counts.n_done < counts.n_lines)
        status = status_fail(note, STATUS_INVALID, "ended with %d of %d lines answered (--resume goes on)",
                             counts.n_done, counts.n_lines);
    close_all(job);
    return status ? cmd_fail(NULL, status, note) : 0;
}

int cmd_run_batch(const struct options *options, int n_words, const char **words) {
    struct job job = {.options = options, .run.out_fd = -1};
    struct status_note note = {0};
    if (n_words != 1) return cmd_usage("run-batch", "one model is expected, %d were given", n_words);
    if (!options->input || !options->output)
        return cmd_usage("run-batch", "--input and --output are needed: the requests' file and that of their answers");
    if (cmd_engine_check(options, &note)) return cmd_usage("run-batch", "%s", note.text);
    if (options->max_num_seqs < 1 || options->max_num_seqs > 4096)
        return cmd_usage("run-batch", "--max-num-seqs: %ld is not within 1..4096", options->max_num_seqs);
    enum status status = batch_run_open(&job.run, &job.api, options->input, options->output, options->resume,
                                        (int)options->max_num_seqs, &note);
    if (!status) status = open_model(&job, words[0], &note);
    if (!status) status = open_api(&job, &note);
    if (!status) status = open_loop(&job, &note);
    if (!status)
        status = api_server_open(&job.api, job.model.engine, job.tokenizer, job.chat_template, job.chat_note.text,
                                 cmd_chat_rules(job.model.gguf), &note);
    if (!status) {
        job.start_ns = job.said_ns = clock_now_ns();
        on_turn(&job);
        http_server_run(job.loop);
        say_progress(&job, true);
    }
    return end(&job, status, &note);
}
