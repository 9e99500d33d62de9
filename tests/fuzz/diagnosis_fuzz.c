/* Any bytes as a request log: they are refused with a reason, or made into sentences. */
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "cmd/diagnose_log.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

static void on_change(void *owner, const struct diagnosis_change *change) {
    int *n_changes = owner;
    (*n_changes)++;
    REQUIRE(change->rule[0] && change->sentence[0] && change->advice[0]);
    REQUIRE(strlen(change->sentence) < DIAGNOSIS_RULES_MAX_TEXT && change->since_ns <= change->at_ns);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes) {
    struct diagnosis *diagnosis;
    struct diagnose_log_counts counts;
    struct status_note note = {0};
    int n_changes = 0;
    enum status status =
        diagnose_log_read((const char *)data, n_bytes, on_change, &n_changes, &diagnosis, &counts, &note);
    REQUIRE(status == STATUS_OK || note.text[0]);
    REQUIRE(counts.n_requests + counts.n_samples <= counts.n_lines);
    diagnosis_destroy(&diagnosis);
    REQUIRE(mem_n_live() == 0);
    return 0;
}
