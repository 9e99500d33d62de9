#include "bench/speed.h"

#include "base/mem.h"
#include "base/rng.h"
#include "bench/quantile.h"
#include "engine/engine_client.h"

struct stream {
    struct request *request;
    int n_tokens;          /* seen so far */
    int n_tokens_at_start; /* of them before all streams decoded */
};

struct round {
    struct stream *streams; /* [n_streams] */
    int n_streams, n_decode;
    int n_started; /* streams that have their first token */
    int n_done;    /* streams with n_decode tokens since all decode */
};

/* ---- one round ---- */

static struct request *make_request(struct engine *engine, int n_prompt, int max_new, uint32_t stream_idx) {
    uint32_t *prompt = mem_alloc_array((size_t)n_prompt, sizeof *prompt);
    if (!prompt) return NULL;
    double n_vocab = (double)engine_model(engine)->n_vocab;
    for (int i = 0; i < n_prompt; i++) prompt[i] = (uint32_t)(rng_uniform(0, stream_idx, (uint32_t)i) * n_vocab);
    struct request *request = engine_client_make(prompt, n_prompt, max_new);
    mem_free(prompt);
    if (request) request->has_cache = false;
    return request;
}

static struct stream *stream_of(struct round *round, uint64_t request_id) {
    for (int i = 0; i < round->n_streams; i++)
        if (round->streams[i].request->id == request_id) return &round->streams[i];
    BUG("an event of a request that was not sent");
}

/* Events come in the order of the steps, and a step gives every decoding stream one token: the last stream's first
 * token is the point from which all decode, and when each has n_decode more they may stop. */
static void count_token(struct engine *engine, struct round *round, struct stream *stream) {
    stream->n_tokens++;
    if (stream->n_tokens == 1 && ++round->n_started == round->n_streams)
        for (int i = 0; i < round->n_streams; i++) round->streams[i].n_tokens_at_start = round->streams[i].n_tokens;
    if (round->n_started < round->n_streams || stream->n_tokens != stream->n_tokens_at_start + round->n_decode) return;
    if (++round->n_done < round->n_streams) return;
    for (int i = 0; i < round->n_streams; i++)
        if (engine_client_cancel(engine, round->streams[i].request->id)) return; /* they end by themselves, later */
}

/* Waits until all that were sent are home. */
static enum status gather(struct engine *engine, struct round *round, int n_sent, struct status_note *note) {
    struct event event;
    enum status status = STATUS_OK;
    while (n_sent > 0) {
        if (!engine_client_wait(engine, -1, &event)) continue;
        struct stream *stream = stream_of(round, event.request_id);
        if (event.kind == EVENT_TOKEN) count_token(engine, round, stream);
        if (event.kind == EVENT_REFUSED) {
            status = event.status;
            if (note) *note = stream->request->note;
        }
        n_sent -= event.kind == EVENT_REFUSED || event.kind == EVENT_FINISHED;
    }
    return status;
}

static enum status run_streams(struct engine *engine, struct round *round, int n_prompt, int max_new,
                               struct status_note *note) {
    enum status status = STATUS_OK;
    int n_sent = 0;
    for (int i = 0; i < round->n_streams; i++) {
        round->streams[i] = (struct stream){make_request(engine, n_prompt, max_new, (uint32_t)i), 0, 0};
        if (!round->streams[i].request) status = STATUS_NOMEM;
    }
    if (status) return status_fail(note, status, "no memory for %d streams", round->n_streams);
    while (n_sent < round->n_streams && !status) {
        status = engine_client_submit(engine, round->streams[n_sent].request);
        if (status) status_fail(note, status, "the engine takes no more than %d requests", n_sent);
        n_sent += !status;
    }
    enum status answered = gather(engine, round, n_sent, note);
    return status ? status : answered;
}

static double prefill_rate(const struct phase_stats *stats) {
    return stats->n_prompt_tokens * 1e3 / phase_stats_ms(stats->prefill_start_ns, stats->prefill_end_ns);
}

/* From the step that gave the last stream its first token to the step that gave the first to end its last one. */
static double decode_rate(const struct round *round) {
    const struct stream *first_out = &round->streams[0];
    int64_t from_ns = 0;
    for (int i = 0; i < round->n_streams; i++) {
        const struct stream *stream = &round->streams[i];
        if (stream->request->stats.first_token_ns > from_ns) from_ns = stream->request->stats.first_token_ns;
        if (stream->request->stats.last_token_ns < first_out->request->stats.last_token_ns) first_out = stream;
    }
    int n_steps = first_out->n_tokens - first_out->n_tokens_at_start;
    int64_t took_ns = first_out->request->stats.last_token_ns - from_ns;
    if (round->n_started < round->n_streams || n_steps < 1 || took_ns <= 0) return 0;
    return (double)n_steps * round->n_streams * 1e9 / (double)took_ns;
}

/* n_streams prompts; out_rates may get the rate of either phase. */
static enum status run_round(struct engine *engine, const struct speed_plan *plan, int n_streams, int n_decode,
                             struct speed_rates *out_rates, struct status_note *note) {
    struct round round = {mem_alloc_array((size_t)n_streams, sizeof *round.streams), n_streams, n_decode, 0, 0};
    if (!round.streams) return status_fail(note, STATUS_NOMEM, "no memory for %d streams", n_streams);
    /* Streams that start early decode while the others' prompts are still computed: they need all the room there is. */
    int max_new = n_streams > 1 ? engine_max_context(engine) - plan->n_prefill : n_decode + 1;
    enum status status = run_streams(engine, &round, plan->n_prefill, max_new, note);
    if (!status) {
        *out_rates = (struct speed_rates){prefill_rate(&round.streams[0].request->stats), decode_rate(&round)};
        if (n_decode && out_rates->decode_tok_s <= 0)
            status = status_fail(note, STATUS_LIMIT,
                                 "the first of %d streams was at its context's end before the last began (--context)",
                                 n_streams);
    }
    for (int i = 0; i < n_streams; i++) engine_client_free(&round.streams[i].request);
    mem_free(round.streams);
    return status;
}

/* ---- all rounds ---- */

int speed_context_tokens(const struct speed_plan *plan) {
    return plan->n_prefill + plan->n_decode + 1;
}

enum status speed_measure(struct engine *engine, const struct speed_plan *plan, struct speed_rates *out_rates,
                          struct status_note *note) {
    size_t n = (size_t)plan->n_rounds;
    double *prefill = mem_alloc_array(n, sizeof *prefill), *decode = mem_alloc_array(n, sizeof *decode);
    enum status status = prefill && decode ? STATUS_OK : status_fail(note, STATUS_NOMEM, "no memory for %zu rounds", n);
    for (int i = -1; i < plan->n_rounds && !status; i++) {
        struct speed_rates one, all;
        status = run_round(engine, plan, 1, plan->n_streams == 1 ? plan->n_decode : 0, &one, note);
        all = one;
        if (!status && plan->n_streams > 1 && plan->n_decode > 0)
            status = run_round(engine, plan, plan->n_streams, plan->n_decode, &all, note);
        if (i < 0 || status) continue; /* the warm-up */
        prefill[i] = one.prefill_tok_s;
        decode[i] = all.decode_tok_s;
    }
    *out_rates = (struct speed_rates){0};
    if (!status) *out_rates = (struct speed_rates){quantile_median(prefill, (int)n), quantile_median(decode, (int)n)};
    mem_free(prefill);
    mem_free(decode);
    return status;
}

/* ---- work ---- */

double speed_prefill_macs(const struct model_config *config, int n_tokens) {
    double d_model = config->d_model, d_ff = config->d_ff, head_dim = config->head_dim;
    double q_dim = config->n_heads * head_dim, kv_dim = config->n_kv_heads * head_dim;
    double kv = d_model * 2 * kv_dim, rest = d_model * (2 * q_dim + 3 * d_ff);
    return (kv + rest) * (config->n_layers - 1) * n_tokens + kv * n_tokens + rest + d_model * config->n_vocab;
}

double speed_kv_bytes(const struct model_config *config, const struct speed_plan *plan, enum dtype kv_dtype) {
    double n_keys = 0;
    double key_bytes = 2.0 * config->n_kv_heads * (double)kv_layout_vector_bytes(kv_dtype, config->head_dim);
    for (int layer = 0; layer < config->n_layers; layer++) {
        int window = config->layers[layer].window;
        for (int i = 1; i <= plan->n_decode; i++) {
            int n_seen = plan->n_prefill + i;
            n_keys += window && window < n_seen ? window : n_seen;
        }
    }
    return plan->n_decode ? n_keys * key_bytes / plan->n_decode : 0;
}
