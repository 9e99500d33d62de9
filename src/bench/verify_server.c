#include "bench/verify_server.h"

#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "bench/load_target.h"

#define MAX_TOKENS 32
#define MAX_OTHER_TOKENS 48
#define MAX_DISTINCT 64
#define TIMEOUT_MS 120000
#define RUN_MS 1000
#define MAX_OTHER_BYTES 4096
#define MAX_OTHER_WORDS 400
#define OWN_TOKENS 100 /* of a template and an answer */

static const char question[] =
    "A lighthouse keeper wrote down each evening which ships had passed, from where the wind came, and what the sea "
    "looked like under it. One evening he wrote:";

struct asker {
    struct verification *all;
    bool is_other;
    struct load_answer answer;
};

struct verification {
    struct load_client *client;
    struct verify_server_report *report;
    struct status_note *note;
    FILE *progress;
    enum status status;
    int n_begun, n_running, n_begun_others;
    int max_words; /* of what the others ask, so that it fits into the context */
    char *first;   /* mem: the first answer's text, terminated */
    uint8_t digests[MAX_DISTINCT][HASH_SHA256_BYTES];
    struct asker askers[VERIFY_SERVER_STREAMS];
};

/* Words that are others each time, 5 to max_words of them. */
static void write_other(int idx, int max_words, char out[MAX_OTHER_BYTES]) {
    static const char *const words[] = {"rivers ",  "seven ", "of ",    "never ",  "the ",  "quietly ",
                                        "harbour ", "and ",   "green ", "engine ", "with ", "paper ",
                                        "must ",    "clock ", "under ", "blue "};
    uint32_t counter[4] = {(uint32_t)idx}, random[4];
    rng_philox(1, counter, random);
    size_t n = 0;
    for (uint32_t n_words = 5 + random[0] % (uint32_t)(max_words - 4); n_words > 0; n_words--) {
        counter[1] = n_words;
        rng_philox(1, counter, random);
        const char *word = words[random[0] % (sizeof words / sizeof words[0])];
        size_t n_word = strlen(word);
        if (n + n_word >= MAX_OTHER_BYTES) break;
        memcpy(out + n, word, n_word);
        n += n_word;
    }
    out[n] = 0;
}

static void copy_from(const char *text, size_t from, char out[64]) {
    size_t n = strlen(text + from);
    if (n > 63) n = 63;
    memcpy(out, text + from, n);
    out[n] = 0;
}

static void compare(struct verification *all, const struct load_answer *answer) {
    struct verify_server_report *report = all->report;
    uint8_t digest[HASH_SHA256_BYTES];
    bool has_ids = answer->n_ids > 0;
    hash_sha256(has_ids ? (const void *)answer->ids : answer->text.ptr,
                has_ids ? (size_t)answer->n_ids * sizeof *answer->ids : answer->text.n_bytes, NULL, 0, digest);
    int i = 0;
    while (i < report->n_distinct && memcmp(all->digests[i], digest, sizeof digest) != 0) i++;
    if (i == report->n_distinct && i < MAX_DISTINCT) memcpy(all->digests[report->n_distinct++], digest, sizeof digest);
    if (report->n_answers == 0) {
        memcpy(report->digest, digest, sizeof digest);
        report->has_ids = has_ids;
        all->first = mem_strndup(answer->text.ptr ? answer->text.ptr : "", answer->text.n_bytes);
        if (!all->first) all->status = status_fail(all->note, STATUS_NOMEM, "no memory for an answer");
    } else if (i > 0 && report->first_other < 0 && all->first) {
        char *text = mem_strndup(answer->text.ptr ? answer->text.ptr : "", answer->text.n_bytes);
        size_t same = 0;
        report->first_other = report->n_answers;
        while (text && text[same] && text[same] == all->first[same]) same++;
        size_t from = same < 16 ? 0 : same - 16;
        if (text) copy_from(text, from, report->text[1]);
        if (text) copy_from(all->first, from, report->text[0]);
        mem_free(text);
    }
    report->n_answers++;
    if (all->progress && report->n_answers % 50 == 0)
        fprintf(all->progress, "%d answers, %d distinct\n", report->n_answers, report->n_distinct);
}

static void begin(struct verification *all, struct asker *asker);

static void on_end(void *owner, struct load_answer *answer) {
    struct asker *asker = owner;
    struct verification *all = asker->all;
    all->n_running--;
    if (answer->end != LOAD_OK && !all->status)
        all->status = status_fail(all->note, STATUS_PEER, "answer %d of %d: %s%s%s", all->report->n_answers + 1,
                                  VERIFY_SERVER_ASKS, load_answer_end_name(answer->end), answer->note[0] ? ": " : "",
                                  answer->note);
    if (answer->end == LOAD_OK && !asker->is_other) compare(all, answer);
    if (answer->end == LOAD_OK && asker->is_other) all->report->n_others++;
    if (!all->status) begin(all, asker);
}

/* The next question of this asker, unless all have been asked. Others ask for as long as it is needed. */
static void begin(struct verification *all, struct asker *asker) {
    char other[MAX_OTHER_BYTES];
    struct load_turn turn = {"user", question};
    if (asker->is_other ? all->report->n_answers == VERIFY_SERVER_ASKS : all->n_begun == VERIFY_SERVER_ASKS) return;
    if (asker->is_other) {
        write_other(all->n_begun_others++, all->max_words, other);
        turn.text = other;
    } else {
        all->n_begun++;
    }
    struct load_ask ask = {.turns = &turn,
                           .n_turns = 1,
                           .max_tokens = asker->is_other ? 1 + all->n_begun_others % MAX_OTHER_TOKENS : MAX_TOKENS,
                           .wants_ids = true,
                           .timeout_ms = TIMEOUT_MS};
    all->status = load_client_start(all->client, &ask, &asker->answer, on_end, asker, all->note);
    all->n_running += !all->status;
}

enum status verify_server(const char *url, const char *api_key, FILE *progress, struct verify_server_report *report,
                          struct status_note *note) {
    struct load_target target;
    struct load_target_wishes wishes = {.url = url, .api_key = api_key};
    struct verification *all = mem_alloc(sizeof *all);
    int n_made = 0;
    *report = (struct verify_server_report){.first_other = -1};
    if (!all) return status_fail(note, STATUS_NOMEM, "no memory for %d answers", VERIFY_SERVER_STREAMS);
    *all = (struct verification){.report = report, .note = note, .progress = progress};
    all->status = load_target_find(&target, &wishes, note);
    if (!all->status) {
        size_t n = strlen(target.model) < sizeof report->model ? strlen(target.model) : sizeof report->model - 1;
        memcpy(report->model, target.model, n);
        int room = target.max_context ? (target.max_context - OWN_TOKENS) / 2 : MAX_OTHER_WORDS;
        all->max_words = room < 5 ? 5 : room < MAX_OTHER_WORDS ? room : MAX_OTHER_WORDS;
        all->status = load_client_create(&all->client, &target, VERIFY_SERVER_STREAMS, note);
    }
    for (int i = 0; !all->status && i < VERIFY_SERVER_STREAMS; i++) {
        all->askers[i].all = all;
        all->askers[i].is_other = i % 2;
        all->status =
            load_answer_init(&all->askers[i].answer, MAX_TOKENS > MAX_OTHER_TOKENS ? MAX_TOKENS : MAX_OTHER_TOKENS);
        n_made += !all->status;
    }
    for (int i = 0; !all->status && i < VERIFY_SERVER_STREAMS; i++) begin(all, &all->askers[i]);
    while (!all->status && all->n_running > 0) load_client_run(all->client, RUN_MS);
    enum status status = all->status;
    load_client_destroy(&all->client);
    for (int i = 0; i < n_made; i++) load_answer_deinit(&all->askers[i].answer);
    mem_free(all->first);
    mem_free(all);
    return status;
}
