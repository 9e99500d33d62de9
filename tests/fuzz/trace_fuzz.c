/* Any bytes as a trace: what is accepted is within the bounds of trace.h and can be walked. */
#include <stdint.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/mem.h"
#include "bench/trace.h"

#define N_VOCAB 1000
#define MAX_WALKED 4096 /* tokens of one request: prompts made from a number may be long */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

/* A file of these bytes without a disk. */
static bool write_file(char *path, size_t max_path, const uint8_t *data, size_t n_bytes) {
    static int fd = -1;
    if (fd < 0) fd = memfd_create("trace", MFD_CLOEXEC);
    snprintf(path, max_path, "/proc/self/fd/%d", fd);
    return fd >= 0 && ftruncate(fd, 0) == 0 && pwrite(fd, data, n_bytes, 0) == (ssize_t)n_bytes;
}

static void walk(const struct trace *trace) {
    struct status_note note = {0};
    bool are_known = trace_check_ids(trace, N_VOCAB, &note) == STATUS_OK;
    REQUIRE(are_known || note.text[0]);
    for (int i = 0; i < trace->n_requests; i++) {
        const struct trace_request *request = &trace->requests[i];
        REQUIRE(request->after < i && request->n_own >= 0 && request->n_own <= request->n_prompt);
        REQUIRE(request->n_prompt <= TRACE_MAX_TOKENS && request->n_shared <= request->n_own);
        REQUIRE(request->n_prompt + request->n_output <= trace->max_context);
        (void)trace_tenant_id(request);
        if (!are_known || request->n_own > MAX_WALKED || request->n_own == 0) continue;
        uint32_t *ids = mem_alloc_array((size_t)request->n_own, sizeof *ids);
        REQUIRE(ids);
        trace_own_tokens(trace, i, N_VOCAB, ids);
        for (int k = 0; k < request->n_own; k++) REQUIRE(ids[k] < N_VOCAB);
        mem_free(ids);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes) {
    char path[64];
    struct trace trace = {0};
    struct status_note note = {0};
    if (!write_file(path, sizeof path, data, n_bytes)) return 0;
    enum status status = trace_read(&trace, path, &note);
    REQUIRE(status == STATUS_OK || note.text[0]);
    if (!status) {
        walk(&trace);
        trace_deinit(&trace);
    }
    REQUIRE(mem_n_live() == 0);
    return 0;
}
