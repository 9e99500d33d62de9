#include "cmd/serve_config.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/str.h"
#include "cmd/cmd_engine.h"
#include "cmd/config_file.h"

#define MAX_BODY_BYTES (1L << 30)
#define MAX_SLO_NS INT64_C(86400000000000)
#define MAX_TIMEOUT_S 86400

/* ---- values with a class in front ---- */

/* "CLASS=" or "CLASS:" in front of *text, moved past it; -1: there is none; -2: an unknown one. */
static int take_class(const char **text, char mark) {
    const char *end = strchr(*text, mark);
    if (!end) return -1;
    for (int i = 0; i < REQUEST_N_CLASSES; i++) {
        const char *name = message_class_name((enum request_class)i);
        if (strlen(name) != (size_t)(end - *text) || strncmp(name, *text, strlen(name)) != 0) continue;
        *text = end + 1;
        return i;
    }
    return -2;
}

static enum status read_class_count(int *out_counts, size_t stride, const char *name, const struct option_list *list,
                                    struct status_note *note) {
    for (int i = 0; i < list->n_items; i++) {
        const char *text = list->items[i];
        int class_ = take_class(&text, '=');
        int64_t n;
        if (class_ == -2 || !str_read_count(text, INT_MAX, &n) || n < 1)
            return status_fail(note, STATUS_INVALID,
                               "--%s: '%s' is not N, interactive=N or batch=N with a whole number above 0", name,
                               list->items[i]);
        for (int c = 0; c < REQUEST_N_CLASSES; c++)
            if (class_ == -1 || class_ == c) *(int *)((char *)out_counts + (size_t)c * stride) = (int)n;
    }
    return STATUS_OK;
}

/* "2s", "75ms" or "1.5s" up to a comma or the end. */
static bool read_time(const char **text, int64_t *out_ns) {
    char *end;
    double value = strtod(*text, &end), unit_ns;
    if (end == *text) return false;
    if (strncmp(end, "ms", 2) == 0)
        unit_ns = 1e6;
    else if (*end == 's')
        unit_ns = 1e9;
    else
        return false;
    end += unit_ns < 1e9 ? 2 : 1;
    if ((*end && *end != ',') || !(value > 0) || value * unit_ns > (double)MAX_SLO_NS) return false;
    *out_ns = (int64_t)(value * unit_ns);
    *text = *end ? end + 1 : end;
    return true;
}

static enum status read_slo(struct serve_config *config, const char *item, struct status_note *note) {
    const char *text = item;
    int class_ = take_class(&text, ':');
    bool is_read = class_ >= 0 && *text;
    while (is_read && *text) {
        bool is_ttft = strncmp(text, "ttft=", 5) == 0, is_itl = strncmp(text, "itl=", 4) == 0;
        struct serve_class *limits = &config->classes[class_];
        text += is_ttft ? 5 : 4;
        is_read = (is_ttft || is_itl) && read_time(&text, &limits->slo_ns[is_ttft ? SLO_TTFT : SLO_ITL]);
    }
    if (is_read) return STATUS_OK;
    return status_fail(note, STATUS_INVALID,
                       "--slo: '%s' is not CLASS:ttft=TIME,itl=TIME with interactive or batch and times as 2s or 75ms",
                       item);
}

static enum status read_classes(struct serve_config *config, struct status_note *note) {
    const struct options *options = &config->options;
    size_t stride = sizeof config->classes[0];
    enum status status = read_class_count(&config->classes[0].max_prompt_tokens, stride, "max-prompt-tokens",
                                          &options->max_prompt_tokens, note);
    if (!status)
        status = read_class_count(&config->classes[0].max_queued, stride, "max-queued-requests",
                                  &options->max_queued_requests, note);
    for (int i = 0; !status && i < options->slo.n_items; i++) status = read_slo(config, options->slo.items[i], note);
    return status;
}

/* ---- single options ---- */

static enum status read_word(const char *name, const char *value, const char *const *words, int n_words, int *out_idx,
                             struct status_note *note) {
    char known[128] = "";
    for (int i = 0; i < n_words; i++) {
        size_t n = strlen(known);
        if (strcmp(words[i], value) == 0) {
            *out_idx = i;
            return STATUS_OK;
        }
        snprintf(known + n, sizeof known - n, "%s%s", i ? ", " : "", words[i]);
    }
    return status_fail(note, STATUS_INVALID, "--%s: '%s' is unknown (known: %s)", name, value, known);
}

static enum status read_words(struct serve_config *config, struct status_note *note) {
    static const char *const levels[] = {"error", "warning", "info", "debug"}, *const formats[] = {"text", "json"},
                             *const over_caps[] = {"reject", "batch"};
    const struct options *options = &config->options;
    int level, format, over_cap;
    enum status status = read_word("log-level", options->log_level, levels, 4, &level, note);
    if (!status) status = read_word("log-format", options->log_format, formats, 2, &format, note);
    if (!status) status = read_word("over-cap", options->over_cap, over_caps, 2, &over_cap, note);
    if (status) return status;
    bool is_given = options->sources[OPTIONS_ROW_log_level].origin != OPTION_DEFAULT;
    config->log_level = options->verbose && !is_given ? LOG_INFO : (enum log_level)level;
    config->log_format = (enum log_format)format;
    config->moves_over_cap = over_cap == 1;
    return STATUS_OK;
}

/* "PORT", "HOST:PORT" or "[HOST]:PORT"; without a host it is loopback. */
static enum status read_admin(struct serve_config *config, struct status_note *note) {
    const char *text = config->options.admin_listen, *colon, *port = text;
    int64_t value;
    if (!text || strcmp(text, "off") == 0) return STATUS_OK;
    snprintf(config->admin_host, sizeof config->admin_host, "127.0.0.1");
    if ((colon = strrchr(text, ':')) != NULL) {
        bool has_brackets = text[0] == '[' && colon > text + 1 && colon[-1] == ']';
        int n = (int)(colon - text) - (has_brackets ? 2 : 0);
        if (n < 1 || n >= (int)sizeof config->admin_host || (!has_brackets && memchr(text, ':', (size_t)n)))
            return status_fail(note, STATUS_INVALID, "--admin-listen: '%s' is not PORT, HOST:PORT or [HOST]:PORT",
                               text);
        snprintf(config->admin_host, sizeof config->admin_host, "%.*s", n, text + has_brackets);
        port = colon + 1;
    }
    if (!str_read_count(port, 65535, &value))
        return status_fail(note, STATUS_INVALID, "--admin-listen: '%s' is not a port within 0..65535", port);
    if (value && value == config->options.port)
        return status_fail(note, STATUS_INVALID, "--admin-listen: %d is --port already", (int)value);
    config->admin_port = (int)value;
    return STATUS_OK;
}

static enum status check_range(const char *name, long value, long min, long max, struct status_note *note) {
    if (value >= min && value <= max) return STATUS_OK;
    return status_fail(note, STATUS_INVALID, "--%s: %ld is not within %ld..%ld", name, value, min, max);
}

static enum status check_ranges(const struct options *options, struct status_note *note) {
    enum status status = check_range("port", options->port, 0, 65535, note);
    if (!status) status = check_range("max-num-seqs", options->max_num_seqs, 1, 4096, note);
    if (!status) status = check_range("shutdown-timeout", options->shutdown_timeout, 0, MAX_TIMEOUT_S, note);
    if (!status) status = check_range("max-body-bytes", options->max_body_bytes, 1024, MAX_BODY_BYTES, note);
    if (!status) status = check_range("max-connections", options->max_connections, 1, 1000000, note);
    if (!status) status = check_range("header-timeout", options->header_timeout, 1, 3600, note);
    if (!status) status = check_range("pre-hook-timeout", options->pre_hook_timeout, 1, 600000, note);
    if (!status) status = check_range("app-cache-ttl", options->app_cache_ttl, 1, 31536000, note);
    if (!status && !options->ssl_certfile != !options->ssl_keyfile)
        status = status_fail(note, STATUS_INVALID, "--ssl-certfile and --ssl-keyfile belong together");
    return status;
}

static enum status check_hook(const struct options *options, struct status_note *note) {
    const char *fail = options->pre_hook_fail;
    if (options->pre_hook && !fail)
        return status_fail(note, STATUS_INVALID,
                           "--pre-hook needs --pre-hook-fail open (then requests pass) or closed");
    if (fail && !options->pre_hook) return status_fail(note, STATUS_INVALID, "--pre-hook-fail needs --pre-hook");
    if (fail && strcmp(fail, "open") != 0 && strcmp(fail, "closed") != 0)
        return status_fail(note, STATUS_INVALID, "--pre-hook-fail: '%.40s' is neither open nor closed", fail);
    return STATUS_OK;
}

/* As llama.cpp counts threads: --threads those of decode, --threads-batch those of prompts. */
static enum status set_threads(const struct options *options, struct options *engine, struct status_note *note) {
    if (!options->threads_batch) return STATUS_OK;
    if (options->threads_decode)
        return status_fail(note, STATUS_INVALID, "--threads-batch and --threads-decode say the same; give one of them");
    if (options->threads > options->threads_batch)
        return status_fail(note, STATUS_INVALID,
                           "--threads: %ld is above --threads-batch %ld: steps of answers take a part of the threads",
                           options->threads, options->threads_batch);
    engine->threads_decode = options->threads;
    engine->threads = options->threads_batch;
    return STATUS_OK;
}

static enum status set_engine(struct serve_config *config, struct status_note *note) {
    struct options *engine = &config->engine;
    double itl_ms = (double)config->classes[REQUEST_INTERACTIVE].slo_ns[SLO_ITL] / 1e6;
    *engine = config->options;
    engine->context = engine->max_model_len;
    /* An SLO between tokens is how long a step may be, unless that is said too. */
    if (itl_ms > 0 && engine->sources[OPTIONS_ROW_target_itl_ms].origin == OPTION_DEFAULT)
        engine->target_itl_ms = itl_ms < 1 ? 1 : itl_ms; /* what is shorter is warned of later */
    enum status status = set_threads(&config->options, engine, note);
    return status ? status : cmd_engine_check(engine, note);
}

static enum status read_model(struct serve_config *config, int n_words, const char **words, struct status_note *note) {
    const char *named = config->options.model;
    bool is_flag = config->options.sources[OPTIONS_ROW_model].origin == OPTION_FLAG;
    if (n_words > 1 || (n_words == 1 && is_flag))
        return status_fail(note, STATUS_INVALID, "one model is expected, %d were given", n_words + is_flag);
    config->model = n_words == 1 ? words[0] : named;
    if (!config->model) return status_fail(note, STATUS_INVALID, "one model is expected, 0 were given");
    return STATUS_OK;
}

bool serve_config_is_loopback(const char *host) {
    return strncmp(host, "127.", 4) == 0 || strcmp(host, "localhost") == 0 || strcmp(host, "::1") == 0;
}

enum status serve_config_read(struct serve_config *config, const struct options *flags, int n_words, const char **words,
                              struct status_note *note) {
    *config = (struct serve_config){.options = *flags};
    struct options *options = &config->options;
    enum status status = options_offer_environment(options, FOR_SERVE, note);
    if (!status && options->config) status = config_file_read(&config->file, options->config, options, FOR_SERVE, note);
    if (status) return status;
    status = read_model(config, n_words, words, note);
    if (!status) status = read_classes(config, note);
    if (!status) status = read_words(config, note);
    if (!status) status = check_ranges(options, note);
    if (!status) status = check_hook(options, note);
    if (!status) status = read_admin(config, note);
    if (!status) status = set_engine(config, note);
    if (status) options_add_source(options, note);
    return status;
}

void serve_config_deinit(struct serve_config *config) {
    toml_file_close(&config->file);
}
