#include "support/model_run.h"

#include <string.h>

#include "support/test.h"

#include "base/mem.h"

void model_run_open(struct model_run *run, const char *path, const struct model_run_options *options) {
    struct status_note note = {0};
    struct model_config config;
    struct kv_layers layers;
    *run = (struct model_run){0};
    if (gguf_open(&run->gguf, path, &note)) fail_msg("%s: %s", path, note.text);
    if (forward_read_config(&config, run->gguf, &note)) fail_msg("%s: %s", path, note.text);
    int n_blocks = (options->max_tokens + options->block_tokens - 1) / options->block_tokens;
    struct group_store_shape shape = {options->kv_dtype, config.n_kv_heads, config.head_dim, options->block_tokens};
    if (kv_layers_init(&layers, config.n_layers, NULL, options->max_tokens, &note) ||
        group_store_init(&run->store, &layers, &shape, &n_blocks, &note))
        fail_msg("%s", note.text);
    assert_int_equal(thread_pool_create(&run->pool, options->n_threads), STATUS_OK);
    kernel_table_choose(&run->kernels, options->tiers);
    struct forward_limits limits = {options->max_rows, options->max_logit_rows, options->activations,
                                    options->has_bf16_tables, NULL};
    if (forward_create(&run->forward, run->gguf, run->pool, &run->kernels, &run->store, &limits, &note))
        fail_msg("%s: %s", path, note.text);
    run->n_vocab = forward_config(run->forward)->n_vocab;
}

void model_run_close(struct model_run *run) {
    forward_destroy(&run->forward);
    group_store_deinit(&run->store);
    thread_pool_destroy(&run->pool);
    gguf_close(&run->gguf);
}

void model_run_step_at(struct model_run *run, const struct model_run_piece *pieces, int n_pieces, const int32_t *wanted,
                       int n_wanted, float *out_logits) {
    int block_tokens = run->store.stores[0].layout.block_tokens, n_rows = 0, n_blocks = 0;
    for (int i = 0; i < n_pieces; i++) {
        n_rows += pieces[i].to - pieces[i].from;
        n_blocks += (pieces[i].to + block_tokens - 1) / block_tokens;
    }
    uint32_t *tokens = mem_alloc_array((size_t)n_rows, 4), *slots = mem_alloc_array((size_t)n_rows, 4);
    int32_t *positions = mem_alloc_array((size_t)n_rows, 4), *all_rows = mem_alloc_array((size_t)n_rows, 4);
    uint32_t *tables = mem_alloc_array((size_t)n_blocks, 4);
    struct batch_sequence *sequences = mem_alloc_array((size_t)n_pieces, sizeof *sequences);
    int row = 0;
    uint32_t *table = tables;
    for (int i = 0; i < n_pieces; i++) {
        const struct model_run_sequence *sequence = pieces[i].sequence;
        sequences[i] = (struct batch_sequence){row, pieces[i].to - pieces[i].from, pieces[i].from, {table}};
        int stride = sequence->block_stride ? sequence->block_stride : 1;
        for (int b = 0; b * block_tokens < pieces[i].to; b++) table[b] = sequence->first_block + (uint32_t)(b * stride);
        for (int pos = pieces[i].from; pos < pieces[i].to; pos++, row++) {
            tokens[row] = sequence->tokens[pos];
            positions[row] = pos;
            slots[row] = table[pos / block_tokens] * (uint32_t)block_tokens + (uint32_t)(pos % block_tokens);
            all_rows[row] = row;
        }
        table += (pieces[i].to + block_tokens - 1) / block_tokens;
    }
    if (!wanted) n_wanted = n_rows;
    struct model_batch batch = {.n_rows = n_rows,
                                .tokens = tokens,
                                .positions = positions,
                                .slots = {slots},
                                .n_sequences = n_pieces,
                                .sequences = sequences,
                                .n_logit_rows = n_wanted,
                                .logit_rows = wanted ? wanted : all_rows};
    const float *logits;
    assert_true(forward_run(run->forward, &batch, &logits));
    memcpy(out_logits, logits, (size_t)n_wanted * (size_t)run->n_vocab * sizeof(float));
    mem_free(tokens);
    mem_free(slots);
    mem_free(positions);
    mem_free(all_rows);
    mem_free(tables);
    mem_free(sequences);
}

void model_run_step(struct model_run *run, const struct model_run_piece *pieces, int n_pieces, float *out_logits) {
    model_run_step_at(run, pieces, n_pieces, NULL, 0, out_logits);
}

void model_run_logits(struct model_run *run, const uint32_t *tokens, int n_tokens, int chunk, float *out_logits) {
    struct model_run_sequence sequence = {tokens, n_tokens, 0, 1};
    if (chunk == 0) chunk = n_tokens;
    for (int from = 0; from < n_tokens; from += chunk) {
        int to = n_tokens - from < chunk ? n_tokens : from + chunk;
        struct model_run_piece piece = {&sequence, from, to};
        model_run_step(run, &piece, 1, out_logits + (size_t)from * (size_t)run->n_vocab);
    }
}
