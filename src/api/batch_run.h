/* batch_run: a file of requests, a line each in OpenAI's batch format, answered into another file, through the same
 * reading, engine and writing as requests over HTTP.
 *
 *   in   {"custom_id": ID, "method": "POST", "url": ROUTE, "body": {...}}
 *   out  {"id": ..., "custom_id": ID, "response": {"status_code", "request_id", "body"}, "error": null}
 * Answers come in the order in which they end. A line that cannot be asked has "response": null and its reason in
 * "error"; whatever a line does, the others go on. Every line is written whole, so that a run that was ended can be
 * taken up: lines whose custom_id is in the output are left out.
 * Thread: io.   Memory: a place per open request and 16 bytes per line; the input is mapped. */
#ifndef KVICK_API_BATCH_RUN_H
#define KVICK_API_BATCH_RUN_H

#include "api/api_server.h"
#include "base/file_map.h"

#define BATCH_RUN_MAX_LINE_BYTES ((size_t)16 << 20)
#define BATCH_RUN_MAX_ID_BYTES 512

struct batch_item;

struct batch_counts {
    int n_lines, n_done;                      /* of the input; answered, those of an earlier run too */
    int n_before;                             /* of them, by an earlier run */
    int n_refused;                            /* of this run: any status but 200 */
    int64_t n_prompt, n_cached, n_completion; /* tokens of this run */
};

struct batch_run {
    struct api_server *api;
    struct file_map in;
    int out_fd;
    size_t next_off; /* in the input */
    int line;        /* number of the line before next_off */
    uint64_t *seen;  /* [n_seen_slots] hashes of custom_ids, open addressing; 0: free */
    uint64_t *done;  /* likewise, those of an earlier run */
    size_t n_slots;
    struct batch_item *items; /* [max_open] */
    int max_open, n_open;
    bool is_stopping;
    struct batch_counts counts;
    enum status status; /* of writing */
    struct status_note note;
};

/* max_open: requests at a time. resumes: the output may be there and is gone on with; else it must not be.
 * Errors: STATUS_IO with the file in note, STATUS_INVALID (the output is there), STATUS_NOMEM. batch_run_close in any
 * case. */
WARN_UNUSED enum status batch_run_open(struct batch_run *run, struct api_server *api, const char *in_path,
                                       const char *out_path, bool resumes, int max_open, struct status_note *note);
void batch_run_close(struct batch_run *run);

/* At the start and a few times per second: asks what can be asked. True: all is done, or it was stopped and nothing
 * runs any more, or the output cannot be written (status). */
bool batch_run_turn(struct batch_run *run);

/* Nothing new is asked, and what runs is cancelled; its lines are not written. */
void batch_run_stop(struct batch_run *run);

#endif
