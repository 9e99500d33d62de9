/* step_history: what is kept of a step, how long, and that a reader beside the writer never sees a torn record. */
#include "engine/step_history.h"

#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "base/thread.h"
#include "engine/engine_client.h"
#include "kvcache/kv_pins.h"
#include "support/request_run.h"
#include "support/test.h"

#define CHUNK 64
#define N_WRITTEN (3 * STEP_HISTORY_MAX)

static struct step_history history;

static void the_largest_prompts_are_named(void **state) {
    static const int rows[] = {3, 40, 5, 1, 40, 7, 2};
    struct step_record record = {0};
    (void)state;
    for (int i = 0; i < 7; i++) step_history_add_part(&record, (uint64_t)i + 1, rows[i], 10 * i);
    assert_int_equal(record.n_parts, STEP_HISTORY_MAX_PARTS);
    static const uint64_t ids[] = {2, 5, 6, 3};
    for (int i = 0; i < STEP_HISTORY_MAX_PARTS; i++) assert_int_equal(record.parts[i].request_id, ids[i]);
    assert_int_equal(record.parts[1].from, 40);
    assert_int_equal(record.n_others, 3);
    assert_int_equal(record.n_other_rows, 3 + 1 + 2);
    assert_int_equal(record.n_prefill_rows, 98);
}

static void old_steps_give_way(void **state) {
    struct step_record record = {0}, read;
    (void)state;
    memset(&history, 0, sizeof history);
    assert_int_equal(step_history_last(&history), 0);
    assert_false(step_history_read(&history, 1, &read));
    for (int i = 1; i <= STEP_HISTORY_MAX + 10; i++) {
        record.start_ns = i;
        record.end_ns = 2 * i;
        step_history_push(&history, &record);
    }
    assert_int_equal(step_history_last(&history), STEP_HISTORY_MAX + 10);
    assert_false(step_history_read(&history, 10, &read));
    assert_false(step_history_read(&history, STEP_HISTORY_MAX + 11, &read));
    for (int i = 11; i <= STEP_HISTORY_MAX + 10; i++) {
        assert_true(step_history_read(&history, i, &read));
        assert_true(read.number == i && read.start_ns == i && read.end_ns == 2 * i);
    }
}

static void write_all(void *arg) {
    struct step_record record = {0};
    (void)arg;
    for (int i = 1; i <= N_WRITTEN; i++) {
        record.start_ns = record.end_ns = i;
        record.n_parts = STEP_HISTORY_MAX_PARTS;
        for (int p = 0; p < STEP_HISTORY_MAX_PARTS; p++) record.parts[p].request_id = (uint64_t)i;
        record.decode.flops = i;
        step_history_push(&history, &record);
    }
}

static void a_reader_sees_whole_records(void **state) {
    struct thread writer;
    struct step_record read;
    int n_read = 0;
    (void)state;
    memset(&history, 0, sizeof history);
    assert_int_equal(thread_start(&writer, "writer", write_all, NULL), STATUS_OK);
    for (int64_t last = 0; last < N_WRITTEN;) {
        last = step_history_last(&history);
        /* The oldest one is where the writer comes next. */
        int64_t number = last > STEP_HISTORY_MAX ? last - STEP_HISTORY_MAX + 1 : 1;
        if (!step_history_read(&history, number, &read)) continue;
        n_read++;
        assert_true(read.number == number && read.start_ns == number && read.end_ns == number);
        for (int p = 0; p < STEP_HISTORY_MAX_PARTS; p++) assert_int_equal(read.parts[p].request_id, (uint64_t)number);
        assert_true(read.decode.flops == (double)number);
    }
    thread_join(&writer);
    assert_true(n_read > 0);
}

/* ---- of an engine ---- */

static struct engine *start(void) {
    struct engine_options options = request_run_options(&request_run_plain, 4, 4 * REQUEST_RUN_MAX_CONTEXT);
    struct status_note note = {0};
    struct engine *engine;
    options.usual_chunk = CHUNK;
    options.has_prefix_cache = true;
    if (engine_create(&engine, &options, &note)) fail_msg("%s", note.text);
    return engine;
}

/* A step is noted at its end, after the events of its tokens have been sent. */
static int64_t await_steps(const struct engine *engine, int64_t n) {
    int64_t deadline_ns = clock_now_ns() + INT64_C(10000000000);
    while (step_history_last(engine_steps(engine)) < n) {
        assert_true(clock_now_ns() < deadline_ns);
        thread_sleep_ms(1);
    }
    return step_history_last(engine_steps(engine));
}

static void chunks_of_a_prompt_are_told_by_its_id(void **state) {
    struct step_record step;
    int n_prefill = 0, n_decode = 0;
    double flops = 0;
    (void)state;
    struct engine *engine = start();
    struct request *request = request_run_make(200, 5);
    request_run_ask(engine, request);
    int64_t last_end_ns = 0, last = await_steps(engine, (200 + CHUNK - 1) / CHUNK + 4);
    assert_int_equal(last, (200 + CHUNK - 1) / CHUNK + 4);
    for (int64_t i = 1; i <= last; i++) {
        assert_true(step_history_read(engine_steps(engine), i, &step));
        assert_true(step.start_ns >= last_end_ns && step.end_ns > step.start_ns && !step.is_abandoned);
        last_end_ns = step.end_ns;
        if (step.n_prefill_rows) {
            assert_int_equal(step.n_parts, 1);
            assert_int_equal(step.parts[0].request_id, request->id);
            assert_int_equal(step.parts[0].from, n_prefill);
            assert_int_equal(step.decode_ns, 0);
        } else {
            assert_int_equal(step.decode_ns, step.end_ns - step.start_ns);
        }
        n_prefill += step.n_prefill_rows;
        n_decode += step.n_decode_rows;
        flops += step.prefill.flops + step.decode.flops;
    }
    assert_int_equal(n_prefill, 200);
    assert_int_equal(n_decode, 4);
    assert_true(fabs(flops - request->stats.prefill.flops - request->stats.decode.flops) < 1e-9 * flops);
    engine_client_free(&request);
    engine_destroy(&engine);
}

static void unchunked_is_one_step_and_the_same_tokens(void **state) {
    struct step_record step;
    uint32_t tokens[8];
    int64_t before = 0;
    (void)state;
    struct engine *engine = start();
    for (int way = 0; way < 3; way++) {
        struct request *request = request_run_make(300, 8);
        request->has_cache = false;
        assert_int_equal(engine_client_set_chunked(engine, way != 1), STATUS_OK);
        request_run_ask(engine, request);
        int64_t after = await_steps(engine, before + (way == 1 ? 1 : (300 + CHUNK - 1) / CHUNK) + 7);
        assert_true(step_history_read(engine_steps(engine), before + 1, &step));
        assert_int_equal(step.n_prefill_rows, way == 1 ? 300 : CHUNK);
        before = after;
        assert_int_equal(engine_read_stats(engine).is_unchunked, way == 1);
        if (way == 0) memcpy(tokens, engine_client_answer(request, 0), sizeof tokens);
        assert_memory_equal(tokens, engine_client_answer(request, 0), sizeof tokens);
        engine_client_free(&request);
    }
    engine_destroy(&engine);
}

static void await_map(struct engine *engine, struct block_map *map) {
    assert_int_equal(engine_client_ask_map(engine, map), STATUS_OK);
    int64_t deadline_ns = clock_now_ns() + INT64_C(10000000000);
    while (atomic_load_explicit(&map->state, memory_order_acquire) != BLOCK_MAP_FILLED) {
        assert_true(clock_now_ns() < deadline_ns);
        thread_sleep_ms(1);
    }
}

static void count_map(const struct block_map *map, int *out_counts) {
    memset(out_counts, 0, BLOCK_N_USES * sizeof *out_counts);
    for (int i = 0; i < map->n_cells; i++)
        for (int use = 0; use < BLOCK_N_USES; use++) out_counts[use] += (int)map->counts[i][use];
}

static void blocks_are_shown_by_their_use(void **state) {
    static struct block_map map;
    int counts[BLOCK_N_USES];
    (void)state;
    struct engine *engine = start();
    await_map(engine, &map);
    count_map(&map, counts);
    assert_int_equal(counts[BLOCK_USE_FREE], map.n_blocks);
    struct request *pinned = request_run_make(200, 0), *other = request_run_make(100, 3);
    pinned->pin_ns = INT64_C(60000000000);
    request_run_ask(engine, pinned);
    other->tokens[0]++; /* no common prefix */
    request_run_ask(engine, other);
    await_map(engine, &map);
    count_map(&map, counts);
    struct engine_stats stats = engine_read_stats(engine);
    assert_int_equal(counts[BLOCK_USE_PINNED], stats.groups[0].n_pinned);
    assert_int_equal(counts[BLOCK_USE_REUSABLE], stats.n_reusable_blocks);
    assert_int_equal(counts[BLOCK_USE_FREE], stats.n_free_blocks);
    assert_true(counts[BLOCK_USE_PINNED] > 0 && counts[BLOCK_USE_REUSABLE] > 0);
    engine_client_free(&pinned);
    engine_client_free(&other);
    engine_destroy(&engine);
}

static void many_blocks_become_cells(void **state) {
    static struct block_map map;
    struct kv_groups_options options = {.n_groups = 1,
                                        .block_tokens = 16,
                                        .tile_tokens = 64,
                                        .n_blocks = {3 * BLOCK_MAP_MAX_CELLS + 1},
                                        .hash = hash_sha256,
                                        .identity = "x",
                                        .n_identity = 1};
    struct kv_groups groups;
    struct kv_pins pins;
    block_id ids[10];
    (void)state;
    assert_int_equal(kv_groups_init(&groups, &options), STATUS_OK);
    assert_int_equal(kv_pins_init(&pins, &groups, 64, 16), STATUS_OK);
    assert_int_equal(block_pool_take(&groups.groups[0].pool, 10, ids), STATUS_OK);
    block_pool_acquire(&groups.groups[0].pool, ids[9]);
    block_map_fill(&map, &groups, &pins);
    assert_int_equal(map.cell_blocks, 4);
    assert_int_equal(map.n_cells, (3 * BLOCK_MAP_MAX_CELLS + 1 + 3) / 4);
    assert_true(map.counts[0][BLOCK_USE_HELD] == 4 && map.counts[2][BLOCK_USE_HELD] == 1);
    assert_true(map.counts[2][BLOCK_USE_SHARED] == 1 && map.counts[2][BLOCK_USE_FREE] == 2);
    assert_int_equal(map.counts[map.n_cells - 1][BLOCK_USE_FREE], 1);
    block_pool_release(&groups.groups[0].pool, ids[9]);
    block_pool_release_all(&groups.groups[0].pool, 10, ids);
    kv_pins_deinit(&pins);
    kv_groups_deinit(&groups);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_largest_prompts_are_named),
        cmocka_unit_test(old_steps_give_way),
        cmocka_unit_test(a_reader_sees_whole_records),
        cmocka_unit_test(chunks_of_a_prompt_are_told_by_its_id),
        cmocka_unit_test(unchunked_is_one_step_and_the_same_tokens),
        cmocka_unit_test(blocks_are_shown_by_their_use),
        cmocka_unit_test(many_blocks_become_cells),
    };
    return cmocka_run_group_tests(tests, request_run_set_up, request_run_tear_down);
}
