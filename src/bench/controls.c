#include "bench/controls.h"

#include <math.h>
#include <string.h>

#include <jansson.h>

#include "base/clock.h"
#include "base/json_write.h"
#include "base/mem.h"
#include "bench/quantile.h"
#include "bench/words.h"

#define N_PROMPTS 3
#define N_ANSWER 32
#define N_AGAIN 16
#define STREAM_PROMPT 64
#define STREAM_ANSWER 48
#define READER_ANSWER 160
#define READER_HEAD_START 10 /* tokens before the whale is sent */
#define SEED 8
#define TIMEOUT_MS 300000
#define WAIT_MS 1000
#define MAX_TEXT_BYTES ((size_t)1 << 20)

struct control {
    struct load_client *client;
    const struct controls_prompts *prompts;
    struct controls_run *run;
    struct load_answer answers[CONTROLS_STREAMS];
    int n_at_once, n_begun; /* of the streams */
    enum status status;     /* of beginning them */
    struct status_note *note;
};

/* ---- prompts ---- */

static int prompt_from(int prompt_idx) {
    return prompt_idx * CONTROLS_PROMPT_TOKENS;
}

static int stream_from(int stream_idx) {
    return N_PROMPTS * CONTROLS_PROMPT_TOKENS + stream_idx * STREAM_PROMPT;
}

static int whale_from(void) {
    return stream_from(CONTROLS_STREAMS + 1); /* the reader's prompt is one more */
}

static enum status read_tokens(struct controls_prompts *prompts, const struct str *reply, struct status_note *note) {
    json_t *json = json_loadb(reply->ptr, reply->n_bytes, 0, NULL), *id;
    int n_wanted = whale_from() + CONTROLS_WHALE_TOKENS;
    size_t i;
    prompts->n_ids = 0;
    json_array_foreach(json_object_get(json, "tokens"), i, id) {
        if (prompts->n_ids < n_wanted) prompts->ids[prompts->n_ids++] = (uint32_t)json_integer_value(id);
    }
    json_decref(json);
    return prompts->n_ids == n_wanted
               ? STATUS_OK
               : status_fail(note, STATUS_PEER, "/tokenize made %d ids, %d are needed", prompts->n_ids, n_wanted);
}

enum status controls_make_prompts(struct controls_prompts *prompts, const struct load_target *target,
                                  struct status_note *note) {
    struct load_client *client;
    struct json_write json;
    struct str text, body, reply;
    int code = 0;
    str_init(&text, MAX_TEXT_BYTES);
    str_init(&body, MAX_TEXT_BYTES);
    str_init(&reply, MAX_TEXT_BYTES);
    json_write_init(&json, &body);
    enum status status = words_append(&text, SEED, 0, whale_from() + CONTROLS_WHALE_TOKENS);
    json_write_object(&json);
    json_write_field_str(&json, "prompt", &text);
    json_write_end_object(&json);
    if (!status) status = json_write_finish(&json);
    if (status) status_fail(note, status, "no memory for the prompts");
    if (!status) status = load_client_create(&client, target, 1, note);
    if (!status) {
        status = load_client_fetch(client, "/tokenize", body.ptr, &reply, &code, note);
        if (!status) status = read_tokens(prompts, &reply, note);
        load_client_destroy(&client);
    }
    str_deinit(&text);
    str_deinit(&body);
    str_deinit(&reply);
    return status;
}

/* ---- requests ---- */

static struct load_ask make_ask(const struct control *control, int from, int n_ids, int n_answer) {
    return (struct load_ask){.ids = control->prompts->ids + from,
                             .n_ids = n_ids,
                             .max_tokens = n_answer,
                             .wants_ids = true,
                             .timeout_ms = TIMEOUT_MS};
}

static enum status check(struct control *control, const struct load_answer *answer, int n_wanted) {
    if (answer->end != LOAD_OK)
        return status_fail(control->note, STATUS_PEER, "a request failed (%s): %s", load_answer_end_name(answer->end),
                           answer->note);
    if (answer->n_ids != n_wanted || answer->n_content < 1)
        return status_fail(control->note, STATUS_PEER, "an answer has %d ids, %d were asked for", answer->n_ids,
                           n_wanted);
    return STATUS_OK;
}

static void keep_ids(struct controls_run *run, const struct load_answer *answer) {
    for (int i = 0; i < answer->n_ids && run->n_ids < CONTROLS_MAX_IDS; i++) run->ids[run->n_ids++] = answer->ids[i];
}

static enum status ask_one(struct control *control, int from, int n_ids, int n_answer) {
    struct load_ask ask = make_ask(control, from, n_ids, n_answer);
    enum status status = load_client_ask(control->client, &ask, &control->answers[0], control->note);
    if (!status) status = check(control, &control->answers[0], n_answer);
    if (!status) keep_ids(control->run, &control->answers[0]);
    return status;
}

/* ---- the questions ---- */

static enum status ask_prompts(struct control *control, double *out_ttft_ms, double *out_token_ms) {
    double ttft[N_PROMPTS], token[N_PROMPTS];
    for (int i = 0; i < N_PROMPTS; i++) {
        enum status status = ask_one(control, prompt_from(i), CONTROLS_PROMPT_TOKENS, N_ANSWER);
        if (status) return status;
        ttft[i] = load_answer_ttft_ms(&control->answers[0]);
        token[i] = load_answer_token_ms(&control->answers[0]);
    }
    *out_ttft_ms = quantile_median(ttft, N_PROMPTS);
    *out_token_ms = quantile_median(token, N_PROMPTS);
    return STATUS_OK;
}

static void on_stream_end(void *owner, struct load_answer *answer);

static enum status start_stream(struct control *control) {
    int idx = control->n_begun++;
    struct load_ask ask = make_ask(control, stream_from(idx), STREAM_PROMPT, STREAM_ANSWER);
    return load_client_start(control->client, &ask, &control->answers[idx], on_stream_end, control, control->note);
}

/* As many at a time as the server takes: who must wait waits here. */
static void on_stream_end(void *owner, struct load_answer *answer) {
    struct control *control = owner;
    (void)answer;
    if (control->n_begun < CONTROLS_STREAMS && !control->status) control->status = start_stream(control);
}

static enum status ask_streams(struct control *control) {
    int64_t from_ns = clock_now_ns();
    while (control->n_begun < control->n_at_once && !control->status) control->status = start_stream(control);
    while (load_client_run(control->client, WAIT_MS)) continue;
    control->run->tok_s = CONTROLS_STREAMS * STREAM_ANSWER * 1e9 / (double)(clock_now_ns() - from_ns);
    enum status status = control->status;
    for (int i = 0; i < CONTROLS_STREAMS && !status; i++) {
        status = check(control, &control->answers[i], STREAM_ANSWER);
        if (!status) keep_ids(control->run, &control->answers[i]);
    }
    return status;
}

/* A stream is read while a long prompt comes. */
static enum status ask_beside_whale(struct control *control) {
    struct load_answer *reader = &control->answers[0], *whale = &control->answers[1];
    struct load_ask ask = make_ask(control, stream_from(CONTROLS_STREAMS), STREAM_PROMPT, READER_ANSWER);
    struct load_ask big = make_ask(control, whale_from(), CONTROLS_WHALE_TOKENS, 1);
    enum status status = load_client_start(control->client, &ask, reader, NULL, NULL, control->note);
    int n_head_start = control->n_at_once > 1 ? READER_HEAD_START : READER_ANSWER + 1; /* alone: one behind the other */
    while (!status && reader->n_content < n_head_start && reader->end == LOAD_RUNNING)
        load_client_run(control->client, WAIT_MS);
    if (!status) status = load_client_start(control->client, &big, whale, NULL, NULL, control->note);
    while (load_client_run(control->client, WAIT_MS)) continue;
    if (!status) status = check(control, reader, READER_ANSWER);
    if (!status) status = check(control, whale, 1);
    if (status) return status;
    keep_ids(control->run, reader);
    keep_ids(control->run, whale);
    for (int i = READER_HEAD_START; i < reader->n_content; i++)
        control->run->gap_ms =
            fmax(control->run->gap_ms, phase_stats_ms(reader->content_ns[i - 1], reader->content_ns[i]));
    return STATUS_OK;
}

/* The first prompt's answer, each token by a request of its own with all before it as the prompt. */
static enum status ask_again(struct control *control) {
    uint32_t ids[CONTROLS_PROMPT_TOKENS + N_AGAIN];
    double took_ms[N_AGAIN];
    memcpy(ids, control->prompts->ids + prompt_from(0), CONTROLS_PROMPT_TOKENS * sizeof *ids);
    for (int i = 0; i < N_AGAIN; i++) {
        struct load_ask ask = make_ask(control, 0, CONTROLS_PROMPT_TOKENS + i, 1);
        struct load_answer *answer = &control->answers[0];
        ask.ids = ids;
        enum status status = load_client_ask(control->client, &ask, answer, control->note);
        if (!status) status = check(control, answer, 1);
        if (status) return status;
        if (answer->ids[0] != control->run->ids[i])
            return status_fail(control->note, STATUS_PEER,
                               "token %d is %u when it is asked for alone, %u in the stream", i, answer->ids[0],
                               control->run->ids[i]);
        ids[CONTROLS_PROMPT_TOKENS + i] = answer->ids[0];
        took_ms[i] = load_answer_ttft_ms(answer);
    }
    control->run->again_ms = quantile_median(took_ms, N_AGAIN);
    return STATUS_OK;
}

static enum status ask_all(struct control *control, bool has_again) {
    struct controls_run *run = control->run;
    double ignored;
    enum status status = ask_prompts(control, &run->ttft_ms, &run->token_ms);
    if (!status) status = ask_prompts(control, &run->repeat_ms, &ignored);
    if (!status) status = ask_streams(control);
    if (!status) status = ask_beside_whale(control);
    if (!status && has_again) status = ask_again(control);
    return status;
}

enum status controls_measure(struct controls_run *run, const struct load_target *target,
                             const struct controls_prompts *prompts, int n_at_once, bool has_again,
                             struct status_note *note) {
    struct control control = {.prompts = prompts, .run = run, .note = note};
    control.n_at_once = n_at_once < CONTROLS_STREAMS ? n_at_once : CONTROLS_STREAMS;
    *run = (struct controls_run){0};
    enum status status = load_client_create(&control.client, target, CONTROLS_STREAMS, note);
    for (int i = 0; i < CONTROLS_STREAMS && !status; i++)
        if (load_answer_init(&control.answers[i], READER_ANSWER))
            status = status_fail(note, STATUS_NOMEM, "no memory for answers");
    if (!status) status = ask_all(&control, has_again);
    load_client_destroy(&control.client);
    for (int i = 0; i < CONTROLS_STREAMS; i++) load_answer_deinit(&control.answers[i]);
    return status;
}

int controls_difference(const struct controls_run *a, const struct controls_run *b) {
    int n = a->n_ids < b->n_ids ? a->n_ids : b->n_ids;
    for (int i = 0; i < n; i++)
        if (a->ids[i] != b->ids[i]) return i;
    return a->n_ids == b->n_ids ? -1 : n;
}
