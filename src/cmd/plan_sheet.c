#include "cmd/plan_sheet.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <string.h>

#include "base/json_write.h"
#include "planner/cost_model.h"

#define GIB 1073741824.0
#define LABEL_WIDTH 38
#define CELL_WIDTH 24
#define MAX_JSON_BYTES (1 << 20)
#define MAX_CHUNK 8192

/* What one model's numbers are, for the sheet's questions. */
struct column {
    const struct model_sizes *sizes;
    int n_tokens;
    double token_bytes, wrong_bytes, session_bytes, kv_bytes;
    long n_fit; /* sessions */
    bool has_times, is_measured;
    int prompts[PLAN_SHEET_N_PROMPTS];
    struct advise_range ttft_ns[PLAN_SHEET_N_PROMPTS];
    struct advise_range alone_ns, together_ns; /* a decode step of one session, of all */
    int chunk;                                 /* prompt rows beside all sessions within the target */
    struct advise_flops flops;
    double crossover;
    struct advise_range kv_rate;
};

static struct advise_range around(int64_t ns) {
    return (struct advise_range){(double)ns * (1 - PLAN_SHEET_MEASURED_SHARE),
                                 (double)ns * (1 + PLAN_SHEET_MEASURED_SHARE)};
}

static struct advise_range ttft_of(const struct plan_sheet *sheet, int idx, int n_prompt) {
    if (sheet->costs[idx])
        return around(cost_model_ttft_ns(sheet->costs[idx], n_prompt, 0, sheet->max_chunk, &sheet->limits));
    return advise_ttft_ns(sheet->models[idx], &sheet->rates, n_prompt);
}

/* Every session's row at the end of its context, and a prompt's first rows. */
static struct advise_range step_of(const struct plan_sheet *sheet, int idx, int n_sessions, int n_chunk) {
    const struct step_cost *cost = sheet->costs[idx];
    int n_tokens = sheet->n_tokens[idx];
    struct step_shape shape = {0};
    if (!cost) return advise_step_ns(sheet->models[idx], &sheet->rates, sheet->kv_dtype, n_sessions, n_tokens, n_chunk);
    for (int i = 0; i < n_sessions; i++) step_cost_add_decode(cost, &shape, n_tokens - 1);
    if (n_chunk) step_cost_add_prefill(cost, &shape, 0, n_chunk, 0);
    return around(step_cost_ns(cost, &shape));
}

/* The largest power of two of prompt rows that surely fits into a step beside all sessions; 0: none. */
static int chunk_of(const struct plan_sheet *sheet, int idx) {
    int chunk = MAX_CHUNK;
    while (chunk && step_of(sheet, idx, sheet->n_sessions, chunk).max > sheet->target_itl_ms * 1e6) chunk /= 2;
    return chunk;
}

static struct column column_of(const struct plan_sheet *sheet, int idx) {
    static const int prompts[PLAN_SHEET_N_PROMPTS - 1] = {512, 4096};
    const struct model_sizes *sizes = sheet->models[idx];
    int n_tokens = sheet->n_tokens[idx];
    struct column column = {.sizes = sizes, .n_tokens = n_tokens};
    column.token_bytes = advise_token_bytes(sizes, sheet->kv_dtype);
    column.wrong_bytes = advise_token_bytes_by_query_heads(sizes, sheet->kv_dtype);
    column.session_bytes = advise_sequence_bytes(sizes, sheet->kv_dtype, n_tokens, sheet->block_tokens);
    column.kv_bytes = column.session_bytes * sheet->n_sessions;
    column.n_fit = advise_n_sessions(sizes, sheet->kv_dtype, n_tokens, sheet->block_tokens, sheet->memory_bytes);
    column.has_times = sizes->row_macs > 0;
    column.is_measured = sheet->costs[idx] != NULL;
    if (!column.has_times) return column;
    for (int i = 0; i < PLAN_SHEET_N_PROMPTS; i++) {
        column.prompts[i] = i < PLAN_SHEET_N_PROMPTS - 1 && prompts[i] < n_tokens ? prompts[i] : n_tokens;
        column.ttft_ns[i] = ttft_of(sheet, idx, column.prompts[i]);
    }
    column.alone_ns = step_of(sheet, idx, 1, 0);
    column.together_ns = step_of(sheet, idx, sheet->n_sessions, 0);
    column.chunk = chunk_of(sheet, idx);
    column.flops = advise_prompt_flops(sizes, n_tokens);
    column.crossover = advise_crossover(sizes);
    double made = advise_sequence_bytes(sizes, sheet->kv_dtype, n_tokens, 1);
    struct advise_range longest = column.ttft_ns[PLAN_SHEET_N_PROMPTS - 1];
    column.kv_rate = (struct advise_range){made * 1e9 / longest.max, made * 1e9 / longest.min};
    return column;
}

/* ---- verdicts ---- */

enum bound { BOUND_WEIGHTS, BOUND_KV, BOUND_TIME, BOUND_NONE };

static enum bound bound_of(const struct plan_sheet *sheet, const struct column *column) {
    if ((double)column->sizes->weight_bytes > sheet->memory_bytes) return BOUND_WEIGHTS;
    if (column->n_fit < sheet->n_sessions) return BOUND_KV;
    return column->has_times && column->together_ns.min > sheet->target_itl_ms * 1e6 ? BOUND_TIME : BOUND_NONE;
}

static const char *bound_name(enum bound bound) {
    static const char *const names[] = {
        [BOUND_WEIGHTS] = "weights", [BOUND_KV] = "kv", [BOUND_TIME] = "time", [BOUND_NONE] = "none"};
    return names[bound];
}

static const char *name_of(const struct column *column) {
    return column->sizes->name[0] ? column->sizes->name : column->sizes->arch;
}

static void print_fit(FILE *out, const struct plan_sheet *sheet, const struct column *column) {
    double memory = sheet->memory_bytes / GIB, weights = (double)column->sizes->weight_bytes / GIB;
    switch (bound_of(sheet, column)) {
    case BOUND_WEIGHTS: fprintf(out, "the weights do not fit: %.2f GiB of %.2f GiB.", weights, memory); return;
    case BOUND_KV:
        fprintf(out, "KV binds: %ld sessions of %d tokens fit into %.2f GiB beside the weights, not %d (%.2f GiB).",
                column->n_fit, column->n_tokens, memory, sheet->n_sessions, column->kv_bytes / GIB);
        return;
    case BOUND_TIME:
        fprintf(out,
                "time binds: %d sessions of %d tokens fit (%.2f GiB of KV), but together they wait %.0f to %.0f ms "
                "for each token, not %.0f.",
                sheet->n_sessions, column->n_tokens, column->kv_bytes / GIB, column->together_ns.min / 1e6,
                column->together_ns.max / 1e6, sheet->target_itl_ms);
        return;
    case BOUND_NONE:
        fprintf(out, "%d sessions of %d tokens fit: %.2f GiB of KV and %.2f of weights in %.2f GiB; KV is full at %ld.",
                sheet->n_sessions, column->n_tokens, column->kv_bytes / GIB, weights, memory, column->n_fit);
        return;
    }
}

static void print_wait(FILE *out, const struct plan_sheet *sheet, const struct column *column) {
    struct advise_range ttft = column->ttft_ns[PLAN_SHEET_N_PROMPTS - 1];
    double target_ns = sheet->target_ttft_ms * 1e6;
    fprintf(out, " A prompt of %d tokens waits %.2f to %.2f s for its first token: %s.", column->n_tokens,
            ttft.min / 1e9, ttft.max / 1e9,
            ttft.min > target_ns   ? "not interactive"
            : ttft.max > target_ns ? "barely interactive"
                                   : "interactive");
}

/* ---- table ---- */

static void print_row(FILE *out, const struct plan_sheet *sheet, const struct column *columns, const char *label,
                      void (*print_cell)(char cell[64], const struct column *column)) {
    fprintf(out, "%-*s", LABEL_WIDTH, label);
    for (int i = 0; i < sheet->n_models; i++) {
        char cell[64] = "-";
        print_cell(cell, &columns[i]);
        fprintf(out, " %*s", CELL_WIDTH, cell);
    }
    fputc('\n', out);
}

#define CELL(name) static void name(char cell[64], const struct column *column)

static void range_cell(char cell[64], const char *fmt, struct advise_range range, double unit) {
    snprintf(cell, 64, fmt, range.min / unit, range.max / unit);
}

CELL(cell_weights) {
    if (column->sizes->weight_bytes)
        snprintf(cell, 64, "%.3f GiB%s", (double)column->sizes->weight_bytes / GIB,
                 column->sizes->is_estimated ? " (estimate)" : "");
}
CELL(cell_token) {
    snprintf(cell, 64, "%.0f", column->token_bytes);
}
CELL(cell_wrong) {
    if (column->sizes->n_heads)
        snprintf(cell, 64, "%.0f (%.1f x)", column->wrong_bytes, column->wrong_bytes / column->token_bytes);
}
CELL(cell_session) {
    snprintf(cell, 64, "%.0f", column->session_bytes);
}
CELL(cell_kv) {
    snprintf(cell, 64, "%.0f", column->kv_bytes);
}
CELL(cell_fit) {
    snprintf(cell, 64, "%ld", column->n_fit);
}
CELL(cell_source) {
    if (column->has_times) snprintf(cell, 64, "%s", column->is_measured ? "measured steps" : "the machine's limits");
}
CELL(cell_first) {
    if (column->has_times) range_cell(cell, "%.0f to %.0f", column->ttft_ns[0], 1e6);
}
CELL(cell_second) {
    if (column->has_times) range_cell(cell, "%.0f to %.0f", column->ttft_ns[1], 1e6);
}
CELL(cell_longest) {
    if (column->has_times) range_cell(cell, "%.0f to %.0f", column->ttft_ns[2], 1e6);
}
CELL(cell_alone) {
    if (column->has_times) range_cell(cell, "%.2f to %.2f", column->alone_ns, 1e6);
}
CELL(cell_together) {
    if (column->has_times) range_cell(cell, "%.2f to %.2f", column->together_ns, 1e6);
}
CELL(cell_chunk) {
    if (column->has_times) snprintf(cell, 64, "%d", column->chunk);
}
CELL(cell_linear) {
    if (column->has_times) snprintf(cell, 64, "%.3g N", 2 * column->sizes->row_macs);
}
CELL(cell_square) {
    double square = column->crossover > 0 ? 2 * column->sizes->row_macs / column->crossover : 0;
    if (!column->has_times) return;
    if (square > 0)
        snprintf(cell, 64, "about %.3g N^2", square);
    else
        snprintf(cell, 64, "0: windows only");
}
CELL(cell_crossover) {
    if (column->has_times && column->crossover > 0) snprintf(cell, 64, "%.0f", column->crossover);
}
CELL(cell_rate) {
    if (column->has_times) range_cell(cell, "%.0f to %.0f", column->kv_rate, 1e6);
}

static void print_sessions(FILE *out, const struct plan_sheet *sheet, const struct column *column) {
    static const int sessions[] = {1, 4, 16, 64, 256};
    fprintf(out, "\nGiB of KV of %s\n%-12s", name_of(column), "context");
    for (size_t i = 0; i < sizeof sessions / sizeof sessions[0]; i++) fprintf(out, " %9d x", sessions[i]);
    fputc('\n', out);
    for (int n_tokens = 1024; n_tokens <= 131072; n_tokens *= 4) {
        double each = advise_sequence_bytes(column->sizes, sheet->kv_dtype, n_tokens, sheet->block_tokens);
        if (column->sizes->max_context && n_tokens > column->sizes->max_context) break;
        fprintf(out, "%-12d", n_tokens);
        for (size_t i = 0; i < sizeof sessions / sizeof sessions[0]; i++) {
            double kv = each * sessions[i];
            fprintf(out, " %10.2f%s", kv / GIB,
                    kv + (double)column->sizes->weight_bytes > sheet->memory_bytes ? "!" : " ");
        }
        fputc('\n', out);
    }
    fprintf(out, "(!: does not fit into %.2f GiB beside the weights)\n", sheet->memory_bytes / GIB);
}

static void print_table(FILE *out, const struct plan_sheet *sheet, const struct column *columns) {
    char label[64];
    fprintf(out, "\n%-*s", LABEL_WIDTH, "");
    for (int i = 0; i < sheet->n_models; i++) fprintf(out, " %*.*s", CELL_WIDTH, CELL_WIDTH, name_of(&columns[i]));
    fputc('\n', out);
    print_row(out, sheet, columns, "weights", cell_weights);
    snprintf(label, sizeof label, "KV bytes per token, %s", sheet->kv_name);
    print_row(out, sheet, columns, label, cell_token);
    print_row(out, sheet, columns, "  by query heads, which is wrong", cell_wrong);
    print_row(out, sheet, columns, "KV bytes of a session", cell_session);
    snprintf(label, sizeof label, "KV bytes of %d sessions", sheet->n_sessions);
    print_row(out, sheet, columns, label, cell_kv);
    print_row(out, sheet, columns, "sessions that fit", cell_fit);
    print_row(out, sheet, columns, "times are from", cell_source);
    print_row(out, sheet, columns, "first token of 512, ms", cell_first);
    print_row(out, sheet, columns, "first token of 4096, ms", cell_second);
    print_row(out, sheet, columns, "first token of a full session, ms", cell_longest);
    print_row(out, sheet, columns, "ms per token, one session", cell_alone);
    snprintf(label, sizeof label, "ms per token, %d sessions", sheet->n_sessions);
    print_row(out, sheet, columns, label, cell_together);
    snprintf(label, sizeof label, "chunk beside them within %.0f ms", sheet->target_itl_ms);
    print_row(out, sheet, columns, label, cell_chunk);
    print_row(out, sheet, columns, "prefill FLOPs, matrices", cell_linear);
    print_row(out, sheet, columns, "prefill FLOPs, attention", cell_square);
    print_row(out, sheet, columns, "N*: attention passes matrices", cell_crossover);
    print_row(out, sheet, columns, "KV made by prefill, MB/s", cell_rate);
    fputs("Storage or a network faster than the last line restores KV sooner than it is computed; a link between a\n"
          "prefill and a decode machine must carry it.\n",
          out);
}

void plan_sheet_print(FILE *out, const struct plan_sheet *sheet) {
    struct column columns[PLAN_SHEET_MAX_MODELS];
    for (int i = 0; i < sheet->n_models; i++) {
        columns[i] = column_of(sheet, i);
        fprintf(out, "%s: ", name_of(&columns[i]));
        print_fit(out, sheet, &columns[i]);
        if (columns[i].has_times) print_wait(out, sheet, &columns[i]);
        fputc('\n', out);
        if (columns[i].sizes->doubt[0]) fprintf(out, "  in doubt: %s\n", columns[i].sizes->doubt);
        if (!columns[i].has_times) fputs("  no times: heads, d_model and d_ff are not known\n", out);
    }
    fprintf(out, "on %s: %.0f GOPS, %.0f GB/s; memory %.2f GiB (%s)\n", sheet->rates.name, sheet->rates.gops,
            sheet->rates.gb_s, sheet->memory_bytes / GIB, sheet->memory_source);
    print_table(out, sheet, columns);
    for (int i = 0; i < sheet->n_models; i++) print_sessions(out, sheet, &columns[i]);
}

/* ---- JSON ---- */

static void write_range(struct json_write *json, const char *key, struct advise_range range, double unit) {
    json_write_field_array(json, key);
    json_write_real(json, range.min / unit);
    json_write_real(json, range.max / unit);
    json_write_end_array(json);
}

static void write_times(struct json_write *json, const struct column *column) {
    json_write_field_array(json, "ttft");
    for (int i = 0; i < PLAN_SHEET_N_PROMPTS; i++) {
        json_write_object(json);
        json_write_field_int(json, "prompt_tokens", column->prompts[i]);
        write_range(json, "ms", column->ttft_ns[i], 1e6);
        json_write_end_object(json);
    }
    json_write_end_array(json);
    json_write_field_text(json, "times_from", column->is_measured ? "measured steps" : "limits");
    write_range(json, "tpot_ms_one", column->alone_ns, 1e6);
    write_range(json, "tpot_ms_all", column->together_ns, 1e6);
    json_write_field_int(json, "chunk_tokens", column->chunk);
    json_write_field_real(json, "flops_linear", column->flops.linear);
    json_write_field_real(json, "flops_attention", column->flops.attention);
    json_write_field_real(json, "flops_logits", column->flops.logits);
    json_write_field_real(json, "crossover_tokens", column->crossover);
    write_range(json, "kv_made_bytes_per_s", column->kv_rate, 1);
}

static void write_column(struct json_write *json, const struct plan_sheet *sheet, const struct column *column) {
    json_write_object(json);
    json_write_field_text(json, "name", name_of(column));
    json_write_field_text(json, "architecture", column->sizes->arch);
    json_write_field_text(json, "binds", bound_name(bound_of(sheet, column)));
    if (column->sizes->doubt[0]) json_write_field_text(json, "in_doubt", column->sizes->doubt);
    json_write_field_int(json, "context_tokens", column->n_tokens);
    json_write_field_int(json, "weight_bytes", (int64_t)column->sizes->weight_bytes);
    json_write_field_int(json, "kv_bytes_per_token", (int64_t)column->token_bytes);
    if (column->sizes->n_heads)
        json_write_field_int(json, "kv_bytes_per_token_by_query_heads", (int64_t)column->wrong_bytes);
    json_write_field_int(json, "kv_bytes_per_session", (int64_t)column->session_bytes);
    json_write_field_int(json, "kv_bytes", (int64_t)column->kv_bytes);
    json_write_field_int(json, "max_sessions", column->n_fit);
    if (column->has_times) write_times(json, column);
    json_write_end_object(json);
}

enum status plan_sheet_print_json(FILE *out, const struct plan_sheet *sheet) {
    struct str text;
    struct json_write json;
    str_init(&text, MAX_JSON_BYTES);
    json_write_init(&json, &text);
    json_write_object(&json);
    json_write_field_text(&json, "machine", sheet->rates.name);
    json_write_field_real(&json, "gops", sheet->rates.gops);
    json_write_field_real(&json, "gb_s", sheet->rates.gb_s);
    json_write_field_int(&json, "memory_bytes", (int64_t)sheet->memory_bytes);
    json_write_field_text(&json, "kv_cache_dtype", sheet->kv_name);
    json_write_field_int(&json, "sessions", sheet->n_sessions);
    json_write_field_array(&json, "models");
    for (int i = 0; i < sheet->n_models; i++) {
        struct column column = column_of(sheet, i);
        write_column(&json, sheet, &column);
    }
    json_write_end_array(&json);
    json_write_end_object(&json);
    enum status status = json_write_finish(&json);
    if (!status) fprintf(out, "%s\n", text.ptr);
    str_deinit(&text);
    return status;
}
