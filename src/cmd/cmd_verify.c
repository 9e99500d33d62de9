#include <stdio.h>
#include <string.h>

#include "bench/verify.h"
#include "bench/verify_server.h"
#include "cmd/cmd.h"
#include "cmd/cmd_engine.h"
#include "model/forward.h"

static void print_digest(const uint8_t digest[HASH_SHA256_BYTES]) {
    for (int i = 0; i < HASH_SHA256_BYTES; i++) printf("%02x", digest[i]);
}

static void print_run(const struct verify_run *run) {
    char chunk[16] = "whole";
    if (run->chunk) snprintf(chunk, sizeof chunk, "%d", run->chunk);
    printf("chunk %s, threads %d, %s, %s", chunk, run->n_threads, run->is_cached ? "cached" : "cold",
           verify_company_name(run->company));
}

static void print_difference(const struct verify_report *report) {
    const struct verify_difference *diff = &report->difference;
    uint32_t bits_a, bits_b;
    memcpy(&bits_a, &diff->logit_a, sizeof bits_a);
    memcpy(&bits_b, &diff->logit_b, sizeof bits_b);
    printf("differ first: ");
    print_run(&report->runs[diff->run_a]);
    printf(" and ");
    print_run(&report->runs[diff->run_b]);
    printf(": prompt of %d tokens, position %d, ", diff->n_prompt, diff->position);
    if (diff->is_token)
        printf("token %u and %u\n", diff->token_a, diff->token_b);
    else
        printf("logit %d: %.9g (%08x) and %.9g (%08x)\n", diff->column, (double)diff->logit_a, bits_a,
               (double)diff->logit_b, bits_b);
}

/* A server's answers, while others ask it too. */
static int verify_url(const struct options *options) {
    struct verify_server_report report;
    struct status_note note = {0};
    const char *api_key = options->api_key.n_items ? options->api_key.items[0] : NULL;
    enum status status = verify_server(options->url, api_key, options->verbose ? stderr : NULL, &report, &note);
    if (status) return cmd_fail(options->url, status, &note);
    print_digest(report.digest);
    printf("\n%d distinct answer%s in %d of %s, beside %d others, compared by %s\n", report.n_distinct,
           report.n_distinct == 1 ? "" : "s", report.n_answers, report.model, report.n_others,
           report.has_ids ? "token ids" : "text");
    if (report.n_distinct == 1) return 0;
    printf("answer %d differs: \"%s\" and \"%s\"\n", report.first_other + 1, report.text[0], report.text[1]);
    return CMD_EXIT_FAILURE;
}

int cmd_verify(const struct options *options, int n_words, const char **words) {
    struct cmd_engine model;
    struct status_note note = {0};
    struct cmd_engine_needs needs = {.max_sequences = 1};
    struct model_config config;
    static struct verify_report report;
    if (options->url && n_words == 0) return verify_url(options);
    if (n_words != 1 || options->url)
        return cmd_usage("verify", "one MODEL or --url URL is needed, %d words given", n_words);
    if (cmd_engine_check(options, &note)) return cmd_usage("verify", "%s", note.text);
    enum status status = cmd_engine_open_file(&model, words[0], options, &needs, &note);
    if (status) return cmd_fail(NULL, status, &note);
    model.options.gguf = model.gguf;
    status = forward_read_config(&config, model.gguf, &note);
    if (!status)
        status = verify_model(&model.options, config.max_context, options->verbose ? stderr : NULL, &report, &note);
    int exit_code = status ? cmd_fail(model.path, status, &note) : 0;
    if (!status) {
        print_digest(report.runs[0].digest);
        printf("\n%d distinct answer%s in %d\n", report.n_distinct, report.n_distinct == 1 ? "" : "s", report.n_runs);
        if (report.n_distinct > 1) {
            print_difference(&report);
            exit_code = CMD_EXIT_FAILURE;
        }
    }
    cmd_engine_close(&model);
    return exit_code;
}
