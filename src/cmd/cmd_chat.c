#include "cmd/cmd_chat.h"

#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/mem.h"
#include "chat/chat_prompt.h"

/* The text of the token whose id stands under id_key; absent key: no such token. */
static enum status model_token(const struct gguf *gguf, const char *id_key, struct chat_template_token *out,
                               struct status_note *note) {
    if (!gguf_has(gguf, id_key)) return STATUS_OK;
    uint64_t id;
    struct gguf_array tokens;
    enum status status = gguf_get_u64(gguf, id_key, &id, note);
    if (!status) status = gguf_get_array(gguf, "tokenizer.ggml.tokens", &tokens, note);
    if (status) return status;
    if (tokens.item_type != GGUF_TEXT || id >= tokens.n_items)
        return status_fail(note, STATUS_FORMAT, "%s: no text for token %llu of %llu", id_key, (unsigned long long)id,
                           (unsigned long long)tokens.n_items);
    size_t cursor = 0;
    struct gguf_text text = {0};
    for (uint64_t i = 0; i <= id; i++)
        if (!gguf_array_next_text(&tokens, &cursor, &text))
            return status_fail(note, STATUS_FORMAT, "tokenizer.ggml.tokens: ends before token %llu",
                               (unsigned long long)id);
    *out = (struct chat_template_token){text.ptr, text.n_bytes};
    return STATUS_OK;
}

enum status cmd_chat_template(const struct gguf *gguf, struct chat_template **out, struct status_note *note) {
    struct gguf_text text;
    struct chat_template_tokens tokens = {0};
    if (!gguf_has(gguf, "tokenizer.chat_template"))
        return status_fail(
            note, STATUS_INVALID,
            "key tokenizer.chat_template is missing, so the model cannot chat (run --raw continues plain text)");
    enum status status = gguf_get_text(gguf, "tokenizer.chat_template", &text, note);
    if (!status) status = model_token(gguf, "tokenizer.ggml.bos_token_id", &tokens.bos, note);
    if (!status) status = model_token(gguf, "tokenizer.ggml.eos_token_id", &tokens.eos, note);
    if (!status) status = model_token(gguf, "tokenizer.ggml.unknown_token_id", &tokens.unk, note);
    if (!status) status = model_token(gguf, "tokenizer.ggml.padding_token_id", &tokens.pad, note);
    return status ? status : chat_template_create(out, text.ptr, text.n_bytes, &tokens, note);
}

struct answer_rules cmd_chat_rules(const struct gguf *gguf) {
    struct gguf_text source;
    bool has_source = gguf_has(gguf, "tokenizer.chat_template") &&
                      gguf_get_text(gguf, "tokenizer.chat_template", &source, NULL) == STATUS_OK;
    return has_source ? answer_parse_rules(source.ptr, source.n_bytes) : (struct answer_rules){0};
}

bool cmd_chat_now(const char *text, int64_t *out_now_s) {
    struct tm tm = {0};
    if (!text) {
        time_t now = time(NULL);
        if (!localtime_r(&now, &tm)) return false;
        *out_now_s = (int64_t)now + tm.tm_gmtoff;
        return true;
    }
    const char *end = strptime(text, "%Y-%m-%d", &tm);
    if (end && (*end == 'T' || *end == ' ')) end = strptime(end + 1, "%H:%M:%S", &tm);
    if (!end || *end) return false;
    *out_now_s = (int64_t)timegm(&tm);
    return true;
}

/* The request as JSON text in memory of ours; NULL: none to be had. */
static char *dump_request(const json_t *request, size_t *out_n_bytes) {
    size_t n_bytes = json_dumpb(request, NULL, 0, JSON_COMPACT);
    char *text = mem_alloc(n_bytes + 1);
    if (text && (n_bytes == 0 || json_dumpb(request, text, n_bytes, JSON_COMPACT) != n_bytes)) {
        mem_free(text);
        return NULL;
    }
    *out_n_bytes = n_bytes;
    return text;
}

enum status cmd_chat_encode(const struct chat_template *chat_template, const struct tokenizer *tokenizer,
                            const json_t *request, struct id_list *out_ids, struct phase_stats *stats,
                            struct status_note *note) {
    int64_t now_s = 0, start_ns = clock_now_ns(), rendered_ns = start_ns;
    size_t n_bytes = 0;
    char *json = dump_request(request, &n_bytes);
    enum status status = json ? STATUS_OK : status_fail(note, STATUS_NOMEM, "no memory for the conversation");
    if (!status && !cmd_chat_now(NULL, &now_s)) status = status_fail(note, STATUS_IO, "the wall clock cannot be read");
    if (!status)
        status = chat_prompt_encode(chat_template, tokenizer, json, n_bytes, now_s, out_ids, &rendered_ns, note);
    phase_stats_add(stats, PHASE_TEMPLATE, start_ns, rendered_ns);
    phase_stats_add(stats, PHASE_TOKENIZE, rendered_ns, clock_now_ns());
    mem_free(json);
    return status;
}
