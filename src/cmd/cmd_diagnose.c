#include <stdio.h>
#include <time.h>

#include "base/file_map.h"
#include "cmd/cmd.h"
#include "cmd/diagnose_log.h"

#define NS_PER_S 1000000000

/* Of the log's clock, which is UTC. */
static void print_time(int64_t at_ns) {
    struct tm tm;
    char text[32] = "";
    time_t seconds = (time_t)(at_ns / NS_PER_S);
    if (gmtime_r(&seconds, &tm) && strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &tm)) printf("%s ", text);
}

static void print_change(void *owner, const struct diagnosis_change *change) {
    int *n_begun = owner;
    print_time(change->at_ns);
    if (change->is_begin) {
        (*n_begun)++;
        printf("%s: %s\n    what helps: %s\n", change->rule, change->sentence, change->advice);
    } else {
        printf("%s is over after %.0f s\n", change->rule, (double)(change->at_ns - change->since_ns) / NS_PER_S);
    }
}

int cmd_diagnose(const struct options *options, int n_words, const char **words) {
    struct status_note note = {0};
    struct file_map file;
    struct diagnosis *diagnosis = NULL;
    struct diagnose_log_counts counts;
    int n_begun = 0;
    (void)options;
    if (n_words != 1) return cmd_usage("diagnose", "one LOG.jsonl is needed, %d given", n_words);
    enum status status = file_map_open(&file, words[0], &note);
    if (status) return cmd_fail(words[0], status, &note);
    status =
        diagnose_log_read((const char *)file.bytes, file.n_bytes, print_change, &n_begun, &diagnosis, &counts, &note);
    diagnosis_destroy(&diagnosis);
    file_map_close(&file);
    if (status) return cmd_fail(words[0], status, &note);
    if (counts.n_requests == 0) {
        status_fail(&note, STATUS_FORMAT, "holds no request of a log that serve --log-format json wrote");
        return cmd_fail(words[0], STATUS_FORMAT, &note);
    }
    printf("%d requests and %d samples of the engine in %.0f s: ", counts.n_requests, counts.n_samples,
           (double)(counts.last_ms - counts.first_ms) / 1000);
    if (n_begun)
        printf("%d findings\n", n_begun);
    else
        printf("nothing was wrong\n");
    return 0;
}
