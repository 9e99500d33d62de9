#include "cmd/bench_controls.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "base/json_write.h"
#include "base/mem.h"
#include "bench/controls.h"
#include "bench/svg.h"
#include "cmd/bench_report.h"
#include "cmd/cmd.h"

#define MAX_METRICS_BYTES ((size_t)4 << 20)
#define CONTEXT_TEXT "2048"

/* Sequences at a time: as always, one, those whose whole contexts fit into the pool. */
enum at_once { MANY, ONE, WHOLE };

#define FIGURE(name) offsetof(struct controls_run, name)

/* What is taken away, and which figure shows it. */
static const struct control {
    const char *name, *figure;
    size_t base_off, value_off; /* of the figure, in the full server's run and in this one's */
    bool is_rate, has_again;
    enum at_once at_once;
    const char *option, *value; /* of serve; value NULL: none, or the number at once */
} controls[] = {
    {.name = "prefill token by token",
     .figure = "first token",
     .base_off = FIGURE(ttft_ms),
     .value_off = FIGURE(ttft_ms),
     .option = "--chunk",
     .value = "1"},
    {.name = "decode without KV reuse",
     .figure = "per token",
     .base_off = FIGURE(token_ms),
     .value_off = FIGURE(again_ms),
     .has_again = true,
     .option = "--no-prefix-cache"},
    {.name = "prompts unchunked",
     .figure = "longest gap beside a prompt",
     .base_off = FIGURE(gap_ms),
     .value_off = FIGURE(gap_ms),
     .option = "--chunk",
     .value = "0"},
    {.name = "prefix cache off",
     .figure = "first token, same prompt",
     .base_off = FIGURE(repeat_ms),
     .value_off = FIGURE(repeat_ms),
     .option = "--no-prefix-cache"},
    {.name = "one sequence at a time",
     .figure = "8 streams together",
     .base_off = FIGURE(tok_s),
     .value_off = FIGURE(tok_s),
     .is_rate = true,
     .at_once = ONE,
     .option = "--max-num-seqs"},
    {.name = "contiguous KV",
     .figure = "8 streams together",
     .base_off = FIGURE(tok_s),
     .value_off = FIGURE(tok_s),
     .is_rate = true,
     .at_once = WHOLE,
     .option = "--max-num-seqs"},
};

#define N_CONTROLS ((int)(sizeof controls / sizeof controls[0]))

struct bench_run {
    const struct options *options;
    const char *model;
    struct controls_prompts prompts;
    struct controls_run base, runs[N_CONTROLS];
    int n_whole; /* contexts that the pool holds */
    struct status_note note;
};

/* ---- one server ---- */

/* The pool's size is a label of vllm:cache_config_info: how many sequences fit if each keeps a whole context. */
static enum status read_pool(struct bench_run *run, const struct load_target *target) {
    struct load_client *client;
    struct str text;
    long n_blocks = 0, block_tokens = 0;
    int code = 0;
    str_init(&text, MAX_METRICS_BYTES);
    enum status status = load_client_create(&client, target, 1, &run->note);
    if (status) return status;
    status = load_client_fetch(client, "/metrics", NULL, &text, &code, &run->note);
    const char *blocks = strstr(text.ptr, "num_gpu_blocks=\""), *tokens = strstr(text.ptr, "block_size=\"");
    bool is_read = blocks && tokens && sscanf(blocks, "num_gpu_blocks=\"%ld\"", &n_blocks) == 1 &&
                   sscanf(tokens, "block_size=\"%ld\"", &block_tokens) == 1;
    if (!status && !is_read) status = status_fail(&run->note, STATUS_PEER, "/metrics does not tell the pool's size");
    if (!status) run->n_whole = (int)(n_blocks * block_tokens / CONTROLS_CONTEXT);
    if (!status && run->n_whole < 1) run->n_whole = 1;
    load_client_destroy(&client);
    str_deinit(&text);
    return status;
}

/* control: NULL is the full server. */
static enum status run_server(struct bench_run *run, const struct control *control, struct controls_run *out) {
    struct bench_server server;
    struct load_target target;
    char number[24];
    int n_at_once = !control || control->at_once == MANY ? CONTROLS_STREAMS
                    : control->at_once == ONE            ? 1
                                                         : run->n_whole;
    struct bench_server_extra extra = {{"--max-model-len", CONTEXT_TEXT}, 2};
    snprintf(number, sizeof number, "%d", n_at_once);
    if (control) extra.words[extra.n_words++] = control->option;
    if (control && control->value) extra.words[extra.n_words++] = control->value;
    if (control && control->at_once != MANY) extra.words[extra.n_words++] = number;
    enum status status = bench_server_start(&server, run->model, run->options, &extra, &run->note);
    if (status) return status;
    struct load_target_wishes wishes = {.url = server.url, .endpoint = "completions"};
    status = load_target_find(&target, &wishes, &run->note);
    if (!status && !control) status = read_pool(run, &target);
    if (!status && !control) status = controls_make_prompts(&run->prompts, &target, &run->note);
    if (!status)
        status = controls_measure(out, &target, &run->prompts, n_at_once, control && control->has_again, &run->note);
    bench_server_stop(&server);
    return status;
}

/* ---- result ---- */

static double figure_of(const struct controls_run *run, size_t off) {
    double value;
    memcpy(&value, (const char *)run + off, sizeof value);
    return value;
}

/* How many times better the full server is. */
static double ratio_of(const struct bench_run *run, int idx) {
    double base = figure_of(&run->base, controls[idx].base_off),
           value = figure_of(&run->runs[idx], controls[idx].value_off);
    return controls[idx].is_rate ? base / value : value / base;
}

static const char *figure_text(double value, bool is_rate, char out[48]) {
    char number[32];
    if (is_rate)
        snprintf(out, 48, "%s tok/s", svg_number(value, number));
    else
        snprintf(out, 48, "%s", svg_ms(value, number));
    return out;
}

static void print_table(const struct bench_run *run) {
    char with[48], without[48];
    printf("%-26s %-28s %12s %12s %8s  %s\n", "without the idea", "figure", "with it", "without", "ratio", "ids");
    for (int i = 0; i < N_CONTROLS; i++) {
        const struct control *control = &controls[i];
        printf("%-26s %-28s %12s %12s %6.1f x  %s\n", control->name, control->figure,
               figure_text(figure_of(&run->base, control->base_off), control->is_rate, with),
               figure_text(figure_of(&run->runs[i], control->value_off), control->is_rate, without), ratio_of(run, i),
               controls_difference(&run->base, &run->runs[i]) < 0 ? "equal" : "DIFFER");
    }
    printf(
        "contiguous KV: each sequence keeps a whole context of %s tokens, so that %d run at a time in the same pool\n",
        CONTEXT_TEXT, run->n_whole);
}

static enum status print_json(const struct bench_run *run) {
    struct json_write json;
    struct str text;
    str_init(&text, MAX_METRICS_BYTES);
    json_write_init(&json, &text);
    json_write_array(&json);
    for (int i = 0; i < N_CONTROLS; i++) {
        json_write_object(&json);
        json_write_field_text(&json, "control", controls[i].name);
        json_write_field_text(&json, "figure", controls[i].figure);
        json_write_field_text(&json, "unit", controls[i].is_rate ? "tok/s" : "ms");
        json_write_field_real(&json, "with", figure_of(&run->base, controls[i].base_off));
        json_write_field_real(&json, "without", figure_of(&run->runs[i], controls[i].value_off));
        json_write_field_real(&json, "ratio", ratio_of(run, i));
        json_write_field_flag(&json, "ids_equal", controls_difference(&run->base, &run->runs[i]) < 0);
        json_write_field_int(&json, "ids", run->runs[i].n_ids);
        json_write_end_object(&json);
    }
    json_write_end_array(&json);
    enum status status = json_write_finish(&json);
    if (!status) printf("%s\n", text.ptr);
    str_deinit(&text);
    return status;
}

static int finish(struct bench_run *run) {
    int n_different = 0;
    enum status status = run->options->json ? print_json(run) : STATUS_OK;
    if (status) return cmd_fail(NULL, status, NULL);
    if (!run->options->json) print_table(run);
    for (int i = 0; i < N_CONTROLS; i++) {
        int at = controls_difference(&run->base, &run->runs[i]);
        if (at < 0) continue;
        n_different++;
        fprintf(stderr, "kvick: '%s' gives other ids, first at place %d of %d\n", controls[i].name, at,
                run->base.n_ids);
    }
    return n_different ? CMD_EXIT_FAILURE : 0;
}

int bench_controls(const struct options *options, const char *model) {
    struct progress progress;
    if (options->url || !model) return cmd_usage("bench", "phases: --controls needs a MODEL, whose server it changes");
    struct bench_run *run = mem_alloc(sizeof *run);
    if (!run) return cmd_fail(NULL, STATUS_NOMEM, NULL);
    run->options = options;
    run->model = model;
    progress_start_steps(&progress, "controls", N_CONTROLS + 1);
    enum status status = run_server(run, NULL, &run->base);
    for (int i = 0; i < N_CONTROLS && !status; i++) {
        progress_set(&progress, (uint64_t)i + 1);
        status = run_server(run, &controls[i], &run->runs[i]);
        if (status) status_note_prefix(&run->note, controls[i].name);
    }
    progress_end(&progress);
    int exit_code = status ? cmd_fail(model, status, &run->note) : finish(run);
    mem_free(run);
    return exit_code;
}
