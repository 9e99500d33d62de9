#include "bench/offline_bound.h"

#include <stdbool.h>
#include <stdlib.h>

#include "base/mem.h"

struct amount {
    int64_t arrival_ns, deadline_ns, work_ns;
    int64_t taken_ns; /* of work_ns, what is done */
};

static int by_work(const void *a, const void *b) {
    const struct amount *x = a, *y = b;
    return (x->work_ns > y->work_ns) - (x->work_ns < y->work_ns);
}

static int by_deadline(const void *a, const void *b) {
    const struct amount *const *x = a, *const *y = b;
    return ((*x)->deadline_ns > (*y)->deadline_ns) - ((*x)->deadline_ns < (*y)->deadline_ns);
}

/* The most work of job that fits beside what is taken: the least slack of all times [arrival of some job, deadline of
 * some job] around it.   due: all jobs by deadline. */
static int64_t room_for(const struct amount *job, const struct amount *jobs, struct amount *const *due, int n) {
    int64_t room = job->work_ns;
    for (int a = 0; a < n; a++) {
        int64_t begin = jobs[a].arrival_ns, inside = 0;
        if (begin > job->arrival_ns) continue;
        for (int d = 0; d < n; d++) {
            if (due[d]->arrival_ns >= begin) inside += due[d]->taken_ns;
            bool is_last = d + 1 == n || due[d + 1]->deadline_ns > due[d]->deadline_ns;
            if (!is_last || due[d]->deadline_ns < job->deadline_ns) continue;
            int64_t slack = due[d]->deadline_ns - begin - inside;
            if (slack < room) room = slack;
        }
    }
    return room > 0 ? room : 0;
}

enum status offline_bound_max_jobs(const struct offline_job *jobs, int n_jobs, double *out_n_jobs) {
    size_t n = (size_t)n_jobs;
    *out_n_jobs = 0;
    if (n == 0) return STATUS_OK;
    struct amount *amounts = mem_alloc_array(n, sizeof *amounts);
    struct amount **due = mem_alloc_array(n, sizeof(struct amount *));
    enum status status = amounts && due ? STATUS_OK : STATUS_NOMEM;
    if (!status) {
        for (size_t i = 0; i < n; i++)
            amounts[i] = (struct amount){jobs[i].arrival_ns, jobs[i].deadline_ns, jobs[i].work_ns, 0};
        qsort(amounts, n, sizeof *amounts, by_work);
        for (size_t i = 0; i < n; i++) due[i] = &amounts[i];
        qsort(due, n, sizeof(struct amount *), by_deadline);
        for (size_t i = 0; i < n; i++) {
            struct amount *job = &amounts[i];
            job->taken_ns = room_for(job, amounts, due, n_jobs);
            *out_n_jobs += job->work_ns > 0 ? (double)job->taken_ns / (double)job->work_ns : 1;
        }
    }
    mem_free(amounts);
    mem_free(due);
    return status;
}
