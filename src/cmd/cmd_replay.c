#include <stdio.h>

#include "bench/replay.h"
#include "cmd/cmd.h"
#include "cmd/cmd_engine.h"

#define DEFAULT_MODEL "smollm2"
#define MAX_SEQUENCES 4096

static enum status print_outcomes(const struct outcomes *outcomes, bool with_requests) {
    json_t *json = outcomes_json(outcomes, with_requests);
    if (!json) return STATUS_NOMEM;
    json_dumpf(json, stdout, JSON_INDENT(1) | JSON_REAL_PRECISION(12));
    putchar('\n');
    json_decref(json);
    return STATUS_OK;
}

static enum status replay(const struct options *options, const struct trace *trace, const char *model,
                          struct status_note *note) {
    struct cmd_engine opened;
    struct outcomes outcomes;
    struct cmd_engine_needs needs = {.min_context = trace->max_context, .max_sequences = (int)options->max_num_seqs};
    enum status status = cmd_engine_open(&opened, model, options, &needs, note);
    if (status) return status;
    status = trace_check_ids(trace, engine_model(opened.engine)->n_vocab, note);
    if (!status && outcomes_init(&outcomes, trace))
        status = status_fail(note, STATUS_NOMEM, "no memory for %d requests", trace->n_requests);
    if (!status) {
        status = replay_run(opened.engine, 1, NULL, &outcomes, note);
        if (!status) status = print_outcomes(&outcomes, !options->summary);
        outcomes_deinit(&outcomes);
    }
    cmd_engine_close(&opened);
    return status;
}

int cmd_replay(const struct options *options, int n_words, const char **words) {
    struct status_note note = {0};
    struct trace trace;
    if (n_words < 1 || n_words > 2) return cmd_usage("replay", "TRACE.jsonl and a MODEL are needed, %d given", n_words);
    if (options->max_num_seqs < 1 || options->max_num_seqs > MAX_SEQUENCES)
        return cmd_usage("replay", "--max-num-seqs: %ld is not within 1..%d", options->max_num_seqs, MAX_SEQUENCES);
    if (cmd_engine_check(options, &note)) return cmd_usage("replay", "%s", note.text);
    enum status status = trace_read(&trace, words[0], &note);
    if (status) return cmd_fail(words[0], status, &note);
    status = replay(options, &trace, n_words > 1 ? words[1] : DEFAULT_MODEL, &note);
    trace_deinit(&trace);
    return status ? cmd_fail(NULL, status, &note) : 0;
}
