#include "planner/capacity.h"

#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "kernels/kernel_ops.h"
#include "kvcache/kv_layers.h"
#include "kvcache/kv_layout.h"

#define MAX_PATH_BYTES 4096
#define MIB 1048576.0
#define NO_LIMIT UINT64_MAX

/* ---- limits ---- */

/* The number in a file of the control groups; NO_LIMIT for "max", no file, or more than any machine has. */
static uint64_t read_number(const char *path) {
    uint64_t value;
    FILE *file = fopen(path, "re");
    if (!file) return NO_LIMIT;
    int n_read = fscanf(file, "%" SCNu64, &value);
    fclose(file);
    return n_read == 1 && value < (uint64_t)1 << 60 ? value : NO_LIMIT;
}

/* "NAME VALUE" or "NAME: VALUE kB" in a file of such lines; 0 if it is not there. */
static uint64_t read_field(const char *path, const char *name) {
    char line[256];
    uint64_t value = 0;
    FILE *file = fopen(path, "re");
    size_t n = strlen(name);
    while (file && fgets(line, sizeof line, file)) {
        if (strncmp(line, name, n) != 0 || (line[n] != ' ' && line[n] != ':')) continue;
        if (sscanf(line + n + 1, "%" SCNu64, &value) != 1) value = 0;
        if (strstr(line, " kB")) value *= 1024;
        break;
    }
    if (file) fclose(file);
    return value;
}

static void narrow(struct capacity_limits *limits, uint64_t bytes, const char *source) {
    if (bytes >= limits->memory_bytes) return;
    limits->memory_bytes = (size_t)bytes;
    snprintf(limits->memory_source, sizeof limits->memory_source, "%s", source);
}

struct group_files {
    const char *mount, *max, *current, *stat_inactive;
};

static const struct group_files version_2 = {"sys/fs/cgroup", "memory.max", "memory.current", "inactive_file"},
                                version_1 = {"sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes",
                                             "total_inactive_file"};

/* Goes from the group up to the root: each level's limit counts. Pages of files that nobody uses are given up when
 * memory gets short, so they count as free. */
static void walk_groups(struct capacity_limits *limits, const char *root, const struct group_files *files,
                        const char *group) {
    char folder[MAX_PATH_BYTES / 2], path[MAX_PATH_BYTES];
    snprintf(folder, sizeof folder, "%s", group);
    for (;;) {
        snprintf(path, sizeof path, "%s/%s%s/%s", root, files->mount, folder, files->max);
        uint64_t max = read_number(path);
        if (max != NO_LIMIT) {
            char source[128];
            snprintf(source, sizeof source, "%s of group %.80s", files->max, folder[0] ? folder : "/");
            snprintf(path, sizeof path, "%s/%s%s/%s", root, files->mount, folder, files->current);
            uint64_t current = read_number(path);
            snprintf(path, sizeof path, "%s/%s%s/memory.stat", root, files->mount, folder);
            uint64_t inactive = read_field(path, files->stat_inactive);
            uint64_t used = current == NO_LIMIT || current < inactive ? 0 : current - inactive;
            narrow(limits, used < max ? max - used : 0, source);
        }
        char *slash = strrchr(folder, '/');
        if (!slash || !folder[0]) return;
        *slash = 0;
    }
}

void capacity_read_limits(struct capacity_limits *limits, const char *root) {
    char path[MAX_PATH_BYTES], line[MAX_PATH_BYTES / 2];
    *limits = (struct capacity_limits){SIZE_MAX, "no limit is known"};
    snprintf(path, sizeof path, "%s/proc/meminfo", root);
    uint64_t available = read_field(path, "MemAvailable");
    if (available) narrow(limits, available, "available on the machine");
    snprintf(path, sizeof path, "%s/proc/self/cgroup", root);
    FILE *file = fopen(path, "re");
    while (file && fgets(line, sizeof line, file)) {
        line[strcspn(line, "\n")] = 0;
        const char *controllers = strchr(line, ':'), *group = controllers ? strchr(controllers + 1, ':') : NULL;
        if (!group) continue;
        group = strcmp(group + 1, "/") == 0 ? "" : group + 1;
        if (strncmp(line, "0::", 3) == 0) walk_groups(limits, root, &version_2, group);
        if (strncmp(controllers, ":memory:", 8) == 0) {
            walk_groups(limits, root, &version_1, group);
            /* In a container the group's own folder is often not mounted: its files are at the root. */
            walk_groups(limits, root, &version_1, "");
        }
    }
    if (file) fclose(file);
    walk_groups(limits, root, &version_2, "");
}

/* ---- pools ---- */

/* Floats of one row of a step, its quantized copies (at most two more bytes per float) included. */
static double row_bytes(const struct model_config *config) {
    double q_dim = (double)config->n_heads * config->head_dim, kv_dim = (double)config->n_kv_heads * config->head_dim;
    double angles = 2.0 * config->ropes[0].n_pairs + 2.0 * config->ropes[1].n_pairs;
    double n = 2.0 * config->d_model + 2 * q_dim + 2 * kv_dim + 2.0 * config->d_ff + angles;
    return 4 * n + 2 * (config->d_ff > config->d_model ? config->d_ff : config->d_model);
}

int capacity_windowed_blocks(int window, int n_blocks, int max_running, int max_chunk, int block_tokens) {
    int64_t n_tokens = (int64_t)window + ATTENTION_TILE_KEYS + max_chunk + 2 * block_tokens;
    int64_t n_windowed = 2 * (int64_t)max_running * (n_tokens / block_tokens + 1);
    return window && n_windowed < n_blocks ? (int)n_windowed : n_blocks;
}

/* Layers that share a block table, as the engine will have them, and how far apart the blocks of each lie. */
struct groups {
    struct kv_layers layers;
    size_t block_bytes[KV_LAYERS_MAX_GROUPS];
};

static enum status find_groups(struct groups *out, const struct capacity_request *request,
                               const struct model_config *config, struct status_note *note) {
    int windows[MODEL_MAX_LAYERS];
    for (int i = 0; i < config->n_layers; i++) windows[i] = config->layers[i].window;
    enum status status = kv_layers_init(&out->layers, config->n_layers, windows, request->max_context, note);
    for (int g = 0; !status && g < out->layers.n_groups; g++) {
        struct kv_layout layout;
        status = kv_layout_init(&layout, request->kv_dtype, out->layers.n_in_group[g], config->n_kv_heads,
                                config->head_dim, request->block_tokens, 1, note);
        out->block_bytes[g] = layout.stride_bytes;
    }
    return status;
}

/* Of all groups, where one without a window has n_blocks. */
static double pool_bytes(const struct capacity_request *request, const struct groups *groups, double n_blocks) {
    double n = 0;
    for (int g = 0; g < groups->layers.n_groups; g++)
        n += (double)groups->block_bytes[g] * capacity_windowed_blocks(groups->layers.windows[g], (int)n_blocks,
                                                                       request->max_running, request->max_chunk,
                                                                       request->block_tokens);
    return n;
}

/* The most blocks up to max whose pool takes at most left bytes. */
static double blocks_within(const struct capacity_request *request, const struct groups *groups, double left,
                            double max) {
    int low = 0, high = (int)max;
    while (low < high) {
        int middle = low + (high - low + 1) / 2;
        if (pool_bytes(request, groups, middle) <= left)
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}

static enum status too_small(const struct capacity *capacity, double context_bytes, double left_bytes,
                             struct status_note *note) {
    const struct capacity_request *request = &capacity->request;
    if (request->kv_bytes)
        return status_fail(note, STATUS_LIMIT,
                           "--kv-cache-memory-bytes: %zu hold no context of %d tokens, which takes %.0f",
                           request->kv_bytes, request->max_context, context_bytes);
    return status_fail(note, STATUS_LIMIT,
                       "no memory for one context of %d tokens (%.0f MiB): of %.0f MiB (%s) weights take %.0f, steps "
                       "%.0f, the margin %.0f MiB, %.0f are left (--context)",
                       request->max_context, context_bytes / MIB, (double)capacity->limits.memory_bytes / MIB,
                       capacity->limits.memory_source, (double)request->weight_bytes / MIB,
                       (double)(capacity->activation_bytes + capacity->logit_bytes) / MIB,
                       (double)capacity->margin_bytes / MIB, left_bytes / MIB);
}

/* Fills the pools beside the KV cache; returns the bytes that memory leaves for it. */
static double plan_left(struct capacity *out, const struct model_config *config, int n_vocab) {
    const struct capacity_request *request = &out->request;
    out->activation_bytes = (size_t)(row_bytes(config) * request->max_rows);
    /* The step's own and the engine's copy. */
    out->logit_bytes = (size_t)(4.0 * request->max_logit_rows * (2.0 * n_vocab + config->d_model));
    double left = (double)request->kv_bytes;
    if (!request->kv_bytes) {
        out->margin_bytes = (size_t)((double)out->limits.memory_bytes * CAPACITY_MARGIN_SHARE);
        left = (double)out->limits.memory_bytes - (double)request->weight_bytes - (double)out->activation_bytes -
               (double)out->logit_bytes - (double)out->margin_bytes;
    }
    return left > 0 ? left : 0;
}

/* A block more than its tokens fill: a sequence that goes on in a shared block has its source beside it. */
static double blocks_of(const struct capacity_request *request, int n_tokens) {
    return (double)((n_tokens + request->block_tokens - 1) / request->block_tokens) + 1;
}

/* The operator's bytes are used up; what he does not need as contexts is cache. */
static double most_blocks(const struct capacity_request *request) {
    double all = INT_MAX / request->block_tokens;
    int usual = request->usual_tokens < request->max_context ? request->usual_tokens : request->max_context;
    if (request->kv_bytes) return all;
    double full = blocks_of(request, request->max_context) * request->max_sequences;
    return fmin(fmax(full, blocks_of(request, usual) * request->max_running), all);
}

int capacity_max_context(const struct capacity_limits *limits, const struct capacity_request *request,
                         const struct model_config *config, int n_vocab) {
    struct capacity found = {.limits = *limits, .request = *request};
    struct groups groups;
    if (find_groups(&groups, request, config, NULL)) return 0;
    double left = plan_left(&found, config, n_vocab);
    double n_blocks = blocks_within(request, &groups, left, (double)(INT_MAX / request->block_tokens));
    int n_each = n_blocks > 0 ? (int)(n_blocks / request->max_sequences) - 1 : 0;
    int n_tokens = n_each > 0 ? n_each * request->block_tokens : 0;
    return n_tokens < request->max_context ? n_tokens : request->max_context;
}

enum status capacity_plan(struct capacity *out, const struct capacity_limits *limits,
                          const struct capacity_request *request, const struct model_config *config, int n_vocab,
                          struct status_note *note) {
    struct groups groups;
    *out = (struct capacity){.limits = *limits, .request = *request};
    enum status status = find_groups(&groups, request, config, note);
    if (status) return status;
    double context_blocks = blocks_of(request, request->max_context);
    double left = plan_left(out, config, n_vocab);
    double n_blocks = blocks_within(request, &groups, left, most_blocks(request));
    if (n_blocks < context_blocks) return too_small(out, pool_bytes(request, &groups, context_blocks), left, note);
    out->kv_tokens = (int)n_blocks * request->block_tokens;
    out->kv_bytes = (size_t)pool_bytes(request, &groups, n_blocks);
    return STATUS_OK;
}

void capacity_print(FILE *out, const struct capacity *capacity, int n_threads) {
    const struct capacity_request *request = &capacity->request;
    fprintf(out, "memory    %10.1f MiB  %s\n", (double)capacity->limits.memory_bytes / MIB,
            capacity->limits.memory_source);
    fprintf(out, "  weights %10.1f MiB\n", (double)request->weight_bytes / MIB);
    fprintf(out, "  steps   %10.1f MiB  %d rows\n", (double)capacity->activation_bytes / MIB, request->max_rows);
    fprintf(out, "  logits  %10.1f MiB  %d rows\n", (double)capacity->logit_bytes / MIB, request->max_logit_rows);
    fprintf(out, "  kv pool %10.1f MiB  %d tokens in blocks of %d, %d contexts of %d\n",
            (double)capacity->kv_bytes / MIB, capacity->kv_tokens, request->block_tokens,
            capacity->kv_tokens / request->max_context, request->max_context);
    fprintf(out, "threads   %10d\n", n_threads);
}
