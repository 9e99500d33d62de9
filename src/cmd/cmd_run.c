#include <errno.h>
#include <langinfo.h>
#include <locale.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <histedit.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/str.h"
#include "cmd/cmd.h"
#include "cmd/cmd_chat.h"
#include "cmd/cmd_engine.h"
#include "cmd/kv_record.h"
#include "engine/engine_client.h"
#include "model/forward.h"
#include "tokenizer/detokenizer.h"

#define MAX_PROMPT_BYTES ((size_t)16 << 20)
#define POLL_MS 100 /* how late Ctrl-C may be seen while no token comes */
#define HISTORY_LINES 200

/* When the parts of the start were done, 0: not yet. The model loads beside all but the file. */
struct start_stamps {
    int64_t begun_ns, file_ns, tokenizer_ns, template_ns, prompt_ns;
};

struct run {
    const struct options *options;
    struct start_stamps start;
    struct cmd_engine model;
    struct tokenizer *tokenizer;
    struct chat_template *chat_template; /* NULL with --raw */
    json_t *request;                     /* {"messages": [...]}, grows with the conversation */
    struct id_list ids;
    struct str answer;
    struct str input;          /* standard input, where it is the prompt */
    struct phase_stats before; /* of the turn: what comes before the engine */
    struct status_note note;
    bool is_terminal;
    int n_answers;
    int n_handled_interrupts; /* Ctrl-C beyond these asks to stop the answer that is being made */
};

static volatile sig_atomic_t n_interrupts;

static void on_interrupt(int signal_number) {
    (void)signal_number;
    n_interrupts++;
}

/* ---- one answer ---- */

static enum status add_message(struct run *run, const char *role, const char *text, size_t n_bytes) {
    json_t *messages = json_object_get(run->request, "messages");
    json_t *content = json_stringn(text, n_bytes);
    if (!content) return status_fail(&run->note, STATUS_INVALID, "the text is not UTF-8");
    json_t *message = json_pack("{s:s, s:o}", "role", role, "content", content);
    if (!message || json_array_append_new(messages, message))
        return status_fail(&run->note, STATUS_NOMEM, "no memory for the conversation");
    return STATUS_OK;
}

static enum status encode_prompt(struct run *run, const char *text, size_t n_bytes) {
    int64_t start_ns = clock_now_ns();
    enum status status;
    id_list_clear(&run->ids);
    run->before = (struct phase_stats){.received_ns = start_ns};
    if (run->options->raw) {
        unsigned flags = tokenizer_adds_bos(run->tokenizer) ? TOKENIZER_ADD_BOS : 0;
        status = tokenizer_encode(run->tokenizer, text, n_bytes, flags, &run->ids, &run->note);
        phase_stats_add(&run->before, PHASE_TOKENIZE, start_ns, clock_now_ns());
        return status;
    }
    status = add_message(run, "user", text, n_bytes);
    phase_stats_add(&run->before, PHASE_PREPROCESS, start_ns, clock_now_ns());
    if (status) return status;
    return cmd_chat_encode(run->chat_template, run->tokenizer, run->request, &run->ids, &run->before, &run->note);
}

/* At least one token of an answer must fit behind the prompt. */
static enum status check_room(struct run *run) {
    int max_context = run->model.options.max_context;
    if (run->ids.n_ids < (size_t)max_context) return STATUS_OK;
    return status_fail(&run->note, STATUS_LIMIT, "the prompt has %zu tokens, the context holds %d with the answer",
                       run->ids.n_ids, max_context);
}

static struct sampling read_sampling(const struct options *options) {
    return (struct sampling){.temperature = (float)options->temperature,
                             .top_k = (int)options->top_k,
                             .top_p = (float)options->top_p,
                             .min_p = (float)options->min_p,
                             .seed = (uint64_t)options->seed};
}

static struct request *make_request(struct run *run) {
    const struct options *options = run->options;
    int n_prompt = (int)run->ids.n_ids, room = run->model.options.max_context - n_prompt;
    int max_new = options->max_tokens < room ? (int)options->max_tokens : room;
    struct request *request = engine_client_make((const uint32_t *)run->ids.ids, n_prompt, max_new);
    if (!request) {
        status_fail(&run->note, STATUS_NOMEM, "no memory for %d tokens", n_prompt + max_new);
        return NULL;
    }
    request->sampling = read_sampling(options);
    request->stats = run->before;
    int n_ends;
    const int32_t *ends = tokenizer_end_ids(run->tokenizer, &n_ends);
    for (int i = 0; i < n_ends && i < REQUEST_MAX_STOP_TOKENS; i++)
        request->stop_tokens[request->n_stop_tokens++] = (uint32_t)ends[i];
    return request;
}

/* Text that has become certain goes to the terminal at once; with --json it is kept. */
static void show(struct run *run, size_t from) {
    if (run->options->json) return;
    fwrite(run->answer.ptr + from, 1, run->answer.n_bytes - from, stdout);
    fflush(stdout);
}

static enum status stream(struct run *run, struct request *request, enum finish_reason *out_reason) {
    struct detokenizer detokenizer;
    struct event event;
    str_clear(&run->answer);
    detokenizer_init(&detokenizer, run->tokenizer, 0);
    enum status status = engine_client_submit(run->model.engine, request);
    if (status) return status_fail(&run->note, status, "the engine takes no request");
    for (;;) {
        int n_now = n_interrupts;
        if (n_now != run->n_handled_interrupts && !engine_client_cancel(run->model.engine, request->id))
            run->n_handled_interrupts = n_now;
        if (!engine_client_wait(run->model.engine, POLL_MS, &event)) continue;
        size_t from = run->answer.n_bytes;
        if (event.kind == EVENT_TOKEN) {
            if (!status) status = detokenizer_push(&detokenizer, (int32_t)event.token, &run->answer);
            show(run, from);
        } else if (event.kind == EVENT_REFUSED) {
            run->note = request->note;
            return event.status;
        } else if (event.kind == EVENT_FINISHED) {
            if (!status) status = detokenizer_finish(&detokenizer, &run->answer);
            show(run, from);
            *out_reason = event.reason;
            return status ? status_fail(&run->note, status, "the answer could not be shown whole") : STATUS_OK;
        }
    }
}

/* ---- the two phase lines ---- */

struct rates {
    double prefill_ms, prefill_tok_s, first_ms, decode_ms, decode_tok_s;
    int n_computed, n_decoded;
};

static struct rates rates_of(const struct phase_stats *stats) {
    struct rates rates = {.n_computed = stats->n_prompt_tokens - stats->n_cached_tokens};
    rates.prefill_ms = (double)stats->part_ns[PHASE_PREFILL_OWN] / 1e6;
    rates.first_ms = stats->first_token_ns ? phase_stats_ms(stats->submitted_ns, stats->first_token_ns) : 0;
    rates.prefill_tok_s = rates.prefill_ms > 0 ? rates.n_computed / rates.prefill_ms * 1e3 : 0;
    rates.n_decoded = stats->n_new_tokens > 1 ? stats->n_new_tokens - 1 : 0;
    if (rates.n_decoded)
        rates.decode_ms = phase_stats_ms(stats->first_token_ns, stats->last_token_ns) / rates.n_decoded;
    if (rates.decode_ms > 0) rates.decode_tok_s = 1e3 / rates.decode_ms;
    return rates;
}

static void print_lines(const struct run *run, const struct phase_stats *stats, enum finish_reason reason) {
    struct rates rates = rates_of(stats);
    const char *dim = run->is_terminal ? "\033[2m" : "", *plain = run->is_terminal ? "\033[0m" : "";
    printf("\n%sprefill  %d prompt tokens, %d cached, %d computed in %.1f ms (%.0f tok/s); first token after %.1f ms\n",
           dim, stats->n_prompt_tokens, stats->n_cached_tokens, rates.n_computed, rates.prefill_ms, rates.prefill_tok_s,
           rates.first_ms);
    printf("decode   %d tokens, %.2f ms/token (%.0f tok/s)%s%s\n", stats->n_new_tokens, rates.decode_ms,
           rates.decode_tok_s,
           reason == FINISH_LENGTH      ? "; stopped at the length limit"
           : reason == FINISH_CANCELLED ? "; interrupted"
                                        : "",
           plain);
    fflush(stdout);
}

static json_t *parts_json(const struct phase_stats *stats) {
    json_t *parts = json_object();
    for (int i = 0; i < N_PHASES; i++)
        json_object_set_new(parts, phase_stats_name((enum phase)i), json_real((double)stats->part_ns[i] / 1e6));
    return parts;
}

static json_t *work_json(const struct phase_work *work) {
    return json_pack("{s:f, s:f, s:f}", "flops", work->flops, "bytes_read", work->bytes_read, "kv_bytes_written",
                     work->kv_bytes_written);
}

/* Milliseconds from the command's begin to the end of each part of the start. */
static json_t *start_json(const struct run *run, const struct phase_stats *stats) {
    const struct start_stamps *start = &run->start;
    const struct {
        const char *name;
        int64_t ns;
    } ends[] = {{"file_ms", start->file_ns},
                {"tokenizer_ms", start->tokenizer_ns},
                {"template_ms", start->template_ns},
                {"prompt_ms", start->prompt_ns},
                {"model_ms", engine_ready_ns(run->model.engine)},
                {"first_token_ms", stats->first_token_ns}};
    json_t *root = json_object();
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++)
        if (ends[i].ns) json_object_set_new(root, ends[i].name, json_real(phase_stats_ms(start->begun_ns, ends[i].ns)));
    return root;
}

static enum status print_json(const struct run *run, const struct request *request, enum finish_reason reason) {
    static const char *const reasons[] = {"stop", "length", "cancelled", "unread"};
    const struct phase_stats *stats = &request->stats;
    struct rates rates = rates_of(stats);
    json_t *ids = json_array();
    for (int i = 0; i < stats->n_new_tokens; i++)
        json_array_append_new(ids, json_integer(request->tokens[request->n_prompt + i]));
    json_t *root = json_pack("{s:s%, s:o, s:s, s:{s:i, s:i, s:i}, s:{s:f, s:f, s:f, s:f, s:f, s:o, s:f}, s:{s:o, s:o}}",
                             "text", run->answer.ptr, run->answer.n_bytes, "ids", ids, "finish_reason", reasons[reason],
                             "usage", "prompt_tokens", stats->n_prompt_tokens, "cached_tokens", stats->n_cached_tokens,
                             "new_tokens", stats->n_new_tokens, "phases", "prefill_ms", rates.prefill_ms,
                             "prefill_tok_s", rates.prefill_tok_s, "first_token_ms", rates.first_ms,
                             "decode_ms_per_token", rates.decode_ms, "decode_tok_s", rates.decode_tok_s, "parts_ms",
                             parts_json(stats), "unaccounted_ms", (double)phase_stats_unaccounted_ns(stats) / 1e6,
                             "work", "prefill", work_json(&stats->prefill), "decode", work_json(&stats->decode));
    if (!root) return STATUS_NOMEM;
    if (run->n_answers == 0) json_object_set_new(root, "start", start_json(run, stats));
    json_dumpf(root, stdout, JSON_COMPACT);
    putchar('\n');
    json_decref(root);
    return STATUS_OK;
}

static void forget_messages(struct run *run, size_t n_kept) {
    json_t *messages = json_object_get(run->request, "messages");
    while (json_array_size(messages) > n_kept) json_array_remove(messages, json_array_size(messages) - 1);
}

/* Asks, streams, prints the phases and keeps the answer in the conversation. */
static enum status take_turn(struct run *run, const char *text, size_t n_bytes) {
    enum finish_reason reason = FINISH_STOP;
    size_t n_messages = json_array_size(json_object_get(run->request, "messages"));
    enum status status = encode_prompt(run, text, n_bytes);
    if (!status) status = check_room(run);
    struct request *request = status ? NULL : make_request(run);
    if (!status && !request) status = STATUS_NOMEM;
    if (!status) status = stream(run, request, &reason);
    if (!status && run->options->json) status = print_json(run, request, reason);
    if (!status && !run->options->json) print_lines(run, &request->stats, reason);
    engine_client_free(&request);
    run->n_answers += !status;
    if (!status && !run->options->raw) status = add_message(run, "assistant", run->answer.ptr, run->answer.n_bytes);
    if (status) forget_messages(run, n_messages); /* the conversation goes on as if this had not been asked */
    return status;
}

/* ---- where the questions come from ---- */

static int ask_given(struct run *run) {
    const struct option_list *prompts = &run->options->prompt;
    for (int i = 0; i < prompts->n_items; i++) {
        if (!run->options->json && prompts->n_items > 1) printf("%s> %s\n", i ? "\n" : "", prompts->items[i]);
        enum status status = take_turn(run, prompts->items[i], strlen(prompts->items[i]));
        if (status) return cmd_fail(NULL, status, &run->note);
        if (n_interrupts) return CMD_EXIT_FAILURE;
    }
    return 0;
}

/* All of standard input, as one prompt. */
static enum status read_stdin(struct run *run) {
    struct str *text = &run->input;
    char bytes[65536];
    size_t n;
    enum status status = STATUS_OK;
    while (!status && (n = fread(bytes, 1, sizeof bytes, stdin)) > 0) status = str_append(text, bytes, n);
    if (status) return status_fail(&run->note, status, "standard input is longer than %zu bytes", MAX_PROMPT_BYTES);
    while (!run->options->raw && text->n_bytes && text->ptr[text->n_bytes - 1] == '\n') text->ptr[--text->n_bytes] = 0;
    return text->n_bytes ? STATUS_OK : status_fail(&run->note, STATUS_INVALID, "standard input is empty");
}

static int ask_stdin(struct run *run) {
    enum status status = take_turn(run, run->input.ptr, run->input.n_bytes);
    return status ? cmd_fail(NULL, status, &run->note) : 0;
}

static char *prompt_text(EditLine *line) {
    (void)line;
    static char text[] = "> ";
    return text;
}

/* False when the person leaves: end of input, or Ctrl-C twice in a row. A Ctrl-C while a line is edited ends the call
 * that reads it, so one that comes with a whole line came after Enter and is for the answer. */
static bool read_line(struct run *run, EditLine *line, History *lines, struct str *out) {
    HistEvent history_event;
    int n_chars, n_empty_interrupts = 0;
    for (;;) {
        errno = 0;
        run->n_handled_interrupts = n_interrupts;
        const char *text = el_gets(line, &n_chars);
        if (text && n_chars > 0) {
            str_clear(out);
            while (n_chars > 0 && (text[n_chars - 1] == '\n' || text[n_chars - 1] == '\r')) n_chars--;
            if (n_chars == 0) continue;
            history(lines, &history_event, H_ENTER, text);
            return str_append(out, text, (size_t)n_chars) == STATUS_OK;
        }
        if (n_chars == 0 || errno != EINTR || n_empty_interrupts++) return false;
        fputs("\n(Ctrl-C again, or Ctrl-D, leaves)\n", stdout);
    }
}

/* libedit reads characters by the locale and drops those that it has not: the terminal's text is UTF-8, whatever the
 * environment says. */
static void use_utf8(void) {
    if (!setlocale(LC_CTYPE, "") || strcmp(nl_langinfo(CODESET), "UTF-8") != 0) setlocale(LC_CTYPE, "C.UTF-8");
}

static int converse(struct run *run) {
    HistEvent history_event;
    use_utf8();
    EditLine *line = el_init("kvick", stdin, stdout, stderr);
    History *lines = history_init();
    struct str text;
    if (!line || !lines) return cmd_fail(NULL, STATUS_NOMEM, NULL);
    history(lines, &history_event, H_SETSIZE, HISTORY_LINES);
    el_set(line, EL_PROMPT, prompt_text);
    el_set(line, EL_EDITOR, "emacs");
    el_set(line, EL_SIGNAL, 0);
    el_set(line, EL_HIST, history, lines);
    str_init(&text, MAX_PROMPT_BYTES);
    while (read_line(run, line, lines, &text)) {
        if (take_turn(run, text.ptr, text.n_bytes)) cmd_fail(NULL, STATUS_INVALID, &run->note);
        putchar('\n');
    }
    putchar('\n');
    str_deinit(&text);
    history_end(lines);
    el_end(line);
    return 0;
}

/* ---- start ---- */

/* The engine packs the weights while this thread reads what text needs. */
static enum status open_model(struct run *run, const char *model) {
    struct cmd_engine_needs needs = {.max_sequences = 1};
    enum status status = cmd_engine_open_file(&run->model, model, run->options, &needs, &run->note);
    run->start.file_ns = clock_now_ns();
    if (!status) status = cmd_engine_begin(&run->model, &run->note);
    if (status) return status;
    kv_record_warn(run->model.gguf, run->model.options.kv_dtype, model);
    status = tokenizer_open(&run->tokenizer, run->model.gguf, &run->note);
    run->start.tokenizer_ns = clock_now_ns();
    if (!status && !run->options->raw) status = cmd_chat_template(run->model.gguf, &run->chat_template, &run->note);
    run->start.template_ns = clock_now_ns();
    if (status) status_note_prefix(&run->note, model);
    if (!status && run->options->system)
        status = add_message(run, "system", run->options->system, strlen(run->options->system));
    return status;
}

/* A first prompt that cannot be answered is refused without waiting for the model. */
static enum status check_first_prompt(struct run *run) {
    size_t n_messages = json_array_size(json_object_get(run->request, "messages"));
    const struct option_list *prompts = &run->options->prompt;
    enum status status = STATUS_OK;
    if (prompts->n_items)
        status = encode_prompt(run, prompts->items[0], strlen(prompts->items[0]));
    else if (run->input.n_bytes)
        status = encode_prompt(run, run->input.ptr, run->input.n_bytes);
    if (!status) status = check_room(run);
    forget_messages(run, n_messages);
    run->start.prompt_ns = clock_now_ns();
    return status;
}

static enum status check_options(const struct options *options, struct status_note *note) {
    struct sampling sampling = read_sampling(options);
    if (options->max_tokens < 1 || options->max_tokens > INT32_MAX)
        return status_fail(note, STATUS_INVALID, "--max-tokens: %ld is not within 1..%d", options->max_tokens,
                           INT32_MAX);
    if (options->top_k > INT32_MAX)
        return status_fail(note, STATUS_INVALID, "--top-k: %ld is too large", options->top_k);
    if (options->raw && options->system) return status_fail(note, STATUS_INVALID, "--system does not go with --raw");
    if (options->raw && options->prompt.n_items > 1)
        return status_fail(note, STATUS_INVALID, "--raw takes one --prompt, %d given", options->prompt.n_items);
    enum status status = sampler_check(&sampling, note);
    return status ? status : cmd_engine_check(options, note);
}

int cmd_run(const struct options *options, int n_words, const char **words) {
    struct run run = {.options = options, .start.begun_ns = clock_now_ns(), .is_terminal = isatty(STDOUT_FILENO) == 1};
    if (n_words != 1) return cmd_usage("run", "one MODEL is needed, %d given", n_words);
    if (check_options(options, &run.note)) return cmd_usage("run", "%s", run.note.text);
    struct sigaction action = {.sa_handler = on_interrupt};
    sigaction(SIGINT, &action, NULL);
    id_list_init(&run.ids, INT32_MAX);
    str_init(&run.answer, MAX_PROMPT_BYTES);
    str_init(&run.input, MAX_PROMPT_BYTES);
    run.request = json_pack("{s:[]}", "messages");
    bool is_conversation = !options->prompt.n_items && !options->raw && isatty(STDIN_FILENO) == 1;
    enum status status = run.request ? open_model(&run, words[0]) : STATUS_NOMEM;
    if (!status && !is_conversation && !options->prompt.n_items) status = read_stdin(&run);
    if (!status && !is_conversation) status = check_first_prompt(&run);
    if (!status) status = cmd_engine_await(&run.model, &run.note);
    int exit_code;
    if (status)
        exit_code = cmd_fail(NULL, status, &run.note);
    else if (is_conversation)
        exit_code = converse(&run);
    else
        exit_code = options->prompt.n_items ? ask_given(&run) : ask_stdin(&run);
    json_decref(run.request);
    id_list_deinit(&run.ids);
    str_deinit(&run.answer);
    str_deinit(&run.input);
    chat_template_destroy(&run.chat_template);
    tokenizer_close(&run.tokenizer);
    cmd_engine_close(&run.model);
    return exit_code;
}
