#include "cmd/cmd_trace.h"

#include <stdio.h>

#include "base/mem.h"
#include "cmd/cmd.h"
#include "cmd/cmd_engine.h"

#define MAX_SEQUENCES 4096

int cmd_trace_check(const char *command, const struct options *options, int n_words) {
    struct status_note note = {0};
    if (n_words < 1 || n_words > 2) return cmd_usage(command, "TRACE.jsonl [MODEL] are needed, %d given", n_words);
    if (options->max_num_seqs < 1 || options->max_num_seqs > MAX_SEQUENCES)
        return cmd_usage(command, "--max-num-seqs: %ld is not within 1..%d", options->max_num_seqs, MAX_SEQUENCES);
    return cmd_engine_check(options, &note) ? cmd_usage(command, "%s", note.text) : 0;
}

enum status cmd_trace_open(struct cmd_trace *opened, const char *path, struct status_note *note) {
    *opened = (struct cmd_trace){.scale = 1};
    enum status status = trace_read(&opened->trace, path, note);
    if (status) status_note_prefix(note, path);
    return status;
}

void cmd_trace_close(struct cmd_trace *opened) {
    mem_free(opened->work);
    mem_free(opened->solo_ns);
    trace_deinit(&opened->trace);
}

enum status cmd_trace_weigh(struct cmd_trace *opened, const struct step_cost *cost, enum cost_model_source source,
                            int max_chunk, bool has_cache, struct status_note *note) {
    static const char *const sources[] = {
        [COST_MODEL_GUESSED] = "guessed", [COST_MODEL_READ] = "read", [COST_MODEL_MEASURED] = "measured"};
    size_t n = (size_t)opened->trace.n_requests;
    opened->cost_source = sources[source];
    opened->work = mem_alloc_array(n, sizeof *opened->work);
    opened->solo_ns = mem_alloc_array(n, sizeof *opened->solo_ns);
    enum status status = opened->work && opened->solo_ns ? STATUS_OK : STATUS_NOMEM;
    if (!status) {
        work_of_trace(&opened->trace, cost, max_chunk, has_cache, opened->work);
        for (size_t i = 0; i < n; i++) opened->solo_ns[i] = opened->work[i].solo_ns;
        opened->scale = work_scale(&opened->trace, opened->work);
        status = work_bound(&opened->trace, opened->work, opened->scale, &opened->n_bound);
    }
    return status ? status_fail(note, status, "no memory for %zu requests", n) : STATUS_OK;
}

enum status cmd_trace_print(const struct cmd_trace *opened, const struct outcomes *outcomes, bool with_requests) {
    json_t *json = outcomes_json(outcomes, with_requests);
    double work_ms = 0;
    for (int i = 0; i < opened->trace.n_requests; i++)
        work_ms += (double)(opened->work[i].prefill_ns + opened->work[i].decode_ns) / 1e6;
    json_t *cost =
        json_pack("{s:s, s:f, s:f, s:o}", "source", opened->cost_source, "work_ms", work_ms, "scale", opened->scale,
                  "bound_in_time", opened->n_bound >= 0 ? json_real(opened->n_bound) : json_null());
    if (!json || !cost || json_object_set_new(json, "cost", cost)) {
        json_decref(json);
        return STATUS_NOMEM;
    }
    json_dumpf(json, stdout, JSON_INDENT(1) | JSON_REAL_PRECISION(12));
    putchar('\n');
    json_decref(json);
    return STATUS_OK;
}
