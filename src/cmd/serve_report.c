#include "cmd/serve_report.h"

#include <stdio.h>

#include "base/log.h"
#include "cmd/kv_record.h"
#include "engine/cost_setup.h"
#include "sched/step_bound.h"
#include "weights/gguf.h"

#define TYPICAL_POS 512 /* of an answer's token */
#define MB 1e6

/* ---- what is known ---- */

static struct step_limits limits_of(const struct engine_options *options) {
    return (struct step_limits){.is_unbounded = !options->target_itl_ns && !options->max_step_ns,
                                .target_itl_ns = options->target_itl_ns,
                                .max_step_ns = options->max_step_ns,
                                .batch_step_ns = STEP_BOUND_BATCH_STEPS * options->max_step_ns};
}

enum status serve_report_expect(struct serve_facts *out, const struct serve_config *config,
                                const struct cmd_engine *model, struct status_note *note) {
    struct model_config read;
    struct kernel_table kernels;
    const struct gguf_tensor *embed = gguf_tensor_find(model->gguf, "token_embd.weight");
    *out = (struct serve_facts){.config = config, .model = model, .limits = limits_of(&model->options)};
    enum status status = forward_read_config(&read, model->gguf, note);
    if (!status && (!embed || embed->n_dims != 2))
        status = status_fail(note, STATUS_FORMAT, "%s: token_embd.weight is missing", model->path);
    if (status) return status;
    read.n_vocab = (int)embed->dims[1];
    kernel_table_choose(&kernels, model->options.tiers);
    out->has_cost = !out->limits.is_unbounded || model->options.cost_dir;
    cost_setup_init(&out->cost, &model->options, &read, &kernels, gguf_file_bytes(model->gguf));
    out->weight_bytes = gguf_file_bytes(model->gguf);
    out->kv_bytes = model->capacity.kv_bytes;
    return STATUS_OK;
}

void serve_report_read(struct serve_facts *out, const struct serve_config *config, const struct cmd_engine *model) {
    const struct cost_model *cost = engine_cost(model->engine);
    *out = (struct serve_facts){.config = config,
                                .model = model,
                                .has_cost = cost != NULL,
                                .limits = *engine_step_limits(model->engine),
                                .weight_bytes = engine_weight_bytes(model->engine),
                                .kv_bytes = engine_kv_bytes(model->engine)};
    if (cost) out->cost = *cost;
}

const char *serve_report_bound_by(const struct serve_config *config, const struct cmd_engine *model) {
    if (config->options.max_model_len) return "option";
    return model->options.max_context < model->model_max_context ? "memory" : "model";
}

/* ---- predictions ---- */

struct pace {
    struct step_cost cost;
    int64_t alone_ns, idle_limit_ns, beside_ns; /* a token of one answer; L without and with somebody reading */
};

static struct pace pace_of(const struct serve_facts *facts) {
    struct step_shape nobody = {0}, reader = {0};
    struct pace pace;
    cost_model_fill(&facts->cost, &pace.cost);
    step_cost_add_decode(&pace.cost, &reader, TYPICAL_POS);
    pace.alone_ns = step_cost_ns(&pace.cost, &reader);
    pace.idle_limit_ns = step_bound_ns(&pace.cost, &facts->limits, &nobody, STEP_PROMPT);
    pace.beside_ns = step_bound_ns(&pace.cost, &facts->limits, &reader, STEP_PROMPT);
    return pace;
}

/* ---- the table ---- */

static void print_pace(const struct serve_facts *facts) {
    static const char *const sources[] = {[COST_MODEL_GUESSED] = "estimated, to be measured while idle",
                                          [COST_MODEL_READ] = "as measured before",
                                          [COST_MODEL_MEASURED] = "as measured now"};
    struct pace pace = pace_of(facts);
    if (facts->limits.is_unbounded)
        printf("steps    not bounded in time: --chunk 0 runs each prompt in one step, answers wait that long\n");
    else
        printf("steps    at most %.0f ms beside an answer, else %.0f ms; costs %s\n", (double)pace.beside_ns / 1e6,
               (double)pace.idle_limit_ns / 1e6, sources[facts->cost.source]);
    int max_chunk = engine_usual_chunk(&facts->model->options), longest = facts->model->options.max_context - 1;
    const int lengths[] = {512, 4096, longest};
    printf("first token after");
    for (int i = 0; i < 3; i++)
        if (lengths[i] < longest || i == 2)
            printf("%s %.0f ms (%d tokens)", i ? "," : "",
                   (double)cost_model_ttft_ns(&pace.cost, lengths[i], 0, max_chunk, &facts->limits) / 1e6, lengths[i]);
    printf("; one answer %.0f tokens/s\n", 1e9 / (double)pace.alone_ns);
}

static void print_classes(const struct serve_config *config) {
    for (int i = 0; i < REQUEST_N_CLASSES; i++) {
        const struct serve_class *class_ = &config->classes[i];
        if (!class_->max_prompt_tokens && !class_->max_queued && !class_->slo_ns[SLO_TTFT] && !class_->slo_ns[SLO_ITL])
            continue;
        printf("class    %s:", message_class_name((enum request_class)i));
        if (class_->max_prompt_tokens) printf(" prompts up to %d tokens;", class_->max_prompt_tokens);
        if (class_->max_queued) printf(" %d wait at most;", class_->max_queued);
        if (class_->slo_ns[SLO_TTFT]) printf(" first token within %.4g s;", (double)class_->slo_ns[SLO_TTFT] / 1e9);
        if (class_->slo_ns[SLO_ITL]) printf(" %.4g ms between tokens;", (double)class_->slo_ns[SLO_ITL] / 1e6);
        printf(" beyond that %s\n", config->moves_over_cap && i == REQUEST_INTERACTIVE ? "batch" : "refused");
    }
}

void serve_report_print(const struct serve_facts *facts) {
    const struct options *options = &facts->config->options;
    const struct cmd_engine *model = facts->model;
    const struct capacity *capacity = &model->capacity;
    int max_context = model->options.max_context;
    int n_decode = model->options.n_decode_threads ? model->options.n_decode_threads : model->options.n_threads;
    printf("model    %s, %.0f MB packed\n", model->path, (double)facts->weight_bytes / MB);
    printf("threads  %d for prompts, %d for answers\n", model->options.n_threads, n_decode);
    printf("memory   %.0f MB (%s): weights %.0f, steps %.0f, KV cache %.0f MB\n",
           (double)capacity->limits.memory_bytes / MB, capacity->limits.memory_source,
           (double)capacity->request.weight_bytes / MB,
           (double)(capacity->activation_bytes + capacity->logit_bytes) / MB, (double)facts->kv_bytes / MB);
    printf("KV cache %d tokens of %s, which is %.1f of the longest requests; %ld requests run at a time\n",
           capacity->kv_tokens, options->kv_cache_dtype, (double)capacity->kv_tokens / max_context,
           options->max_num_seqs);
    printf("one request may have %d tokens, bound by %s (the model allows %d)\n", max_context,
           serve_report_bound_by(facts->config, model), model->model_max_context);
    printf("prefix cache %s: blocks of %ld tokens%s\n", options->no_prefix_cache ? "off" : "on", options->block_tokens,
           options->no_prefix_cache ? "" : ", and of the last one as much as is shared: a prefix of one token can hit");
    print_classes(facts->config);
    if (facts->n_keys) printf("keys     %d\n", facts->n_keys);
    if (facts->has_cost) print_pace(facts);
}

/* ---- warnings ---- */

static void warn_slo(const struct serve_facts *facts, enum request_class class_, const struct pace *pace) {
    const struct serve_class *slo = &facts->config->classes[class_];
    int longest = facts->model->options.max_context - 1;
    if (slo->max_prompt_tokens && slo->max_prompt_tokens < longest) longest = slo->max_prompt_tokens;
    int64_t ttft_ns =
        cost_model_ttft_ns(&pace->cost, longest, 0, engine_usual_chunk(&facts->model->options), &facts->limits);
    if (slo->slo_ns[SLO_TTFT] && ttft_ns > slo->slo_ns[SLO_TTFT])
        log_line(LOG_WARN,
                 "--slo %s:ttft=%.4gs cannot be met for the longest prompts: %d tokens take %.4g s on an idle machine",
                 message_class_name(class_), (double)slo->slo_ns[SLO_TTFT] / 1e9, longest, (double)ttft_ns / 1e9);
    if (slo->slo_ns[SLO_ITL] && pace->beside_ns > slo->slo_ns[SLO_ITL])
        log_line(LOG_WARN, "--slo %s:itl=%.4gms cannot be met: a step beside one answer may take %.4g ms",
                 message_class_name(class_), (double)slo->slo_ns[SLO_ITL] / 1e6, (double)pace->beside_ns / 1e6);
}

void serve_report_warn(const struct serve_facts *facts) {
    const struct serve_config *config = facts->config;
    if (facts->has_cost) {
        struct pace pace = pace_of(facts);
        for (int i = 0; i < REQUEST_N_CLASSES; i++) warn_slo(facts, (enum request_class)i, &pace);
    }
    kv_record_warn(facts->model->gguf, facts->model->options.kv_dtype, config->model);
    if (facts->n_keys == 0 && !serve_config_is_loopback(config->options.host))
        log_line(LOG_WARN,
                 "%s is not loopback and there is neither --api-key nor --keys: everybody who reaches it may ask",
                 config->options.host);
    if (config->admin_host[0] && !serve_config_is_loopback(config->admin_host))
        log_line(LOG_WARN, "--admin-listen: %s is not loopback: everybody who reaches it sees what all keys do",
                 config->admin_host);
}
