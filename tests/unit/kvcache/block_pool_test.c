#include "kvcache/block_pool.h"

#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/mem.h"
#include "support/test.h"

static struct block_pool pool_of(int n_blocks) {
    struct block_pool pool;
    assert_int_equal(block_pool_init(&pool, n_blocks), STATUS_OK);
    return pool;
}

static void assert_counts(const struct block_pool *pool, int n_free, int n_reusable, int n_held) {
    assert_null(block_pool_check(pool));
    assert_int_equal(pool->n_free, n_free);
    assert_int_equal(pool->n_reusable, n_reusable);
    assert_int_equal(pool->n_held, n_held);
    assert_int_equal(block_pool_n_available(pool), n_free + n_reusable);
}

static void a_block_goes_through_all_states(void **state) {
    (void)state;
    struct block_pool pool = pool_of(3);
    block_id id;
    assert_counts(&pool, 3, 0, 0);
    assert_int_equal(block_pool_take(&pool, 1, &id), STATUS_OK);
    assert_counts(&pool, 2, 0, 1);
    assert_int_equal(block_pool_n_refs(&pool, id), 1);
    block_pool_acquire(&pool, id);
    assert_int_equal(block_pool_n_refs(&pool, id), 2);
    block_pool_release(&pool, id);
    assert_counts(&pool, 2, 0, 1);
    block_pool_set_findable(&pool, id, true);
    block_pool_release(&pool, id);
    assert_counts(&pool, 2, 1, 0);
    block_pool_acquire(&pool, id);
    assert_counts(&pool, 2, 0, 1);
    block_pool_set_findable(&pool, id, false);
    block_pool_release(&pool, id);
    assert_counts(&pool, 3, 0, 0);
    block_pool_deinit(&pool);
}

static void too_many_changes_nothing(void **state) {
    (void)state;
    struct block_pool pool = pool_of(4);
    block_id ids[5] = {77, 77, 77, 77, 77};
    assert_int_equal(block_pool_take(&pool, 5, ids), STATUS_LIMIT);
    assert_int_equal(ids[0], 77);
    assert_int_equal(block_pool_take(&pool, 0, ids), STATUS_OK);
    assert_counts(&pool, 4, 0, 0);
    assert_int_equal(block_pool_take(&pool, 4, ids), STATUS_OK);
    for (block_id i = 0; i < 4; i++) assert_int_equal(ids[i], i);
    assert_int_equal(block_pool_take(&pool, 1, ids + 4), STATUS_LIMIT);
    assert_int_equal(ids[4], 77);
    block_pool_release_all(&pool, 4, ids);
    assert_counts(&pool, 4, 0, 0);
    block_pool_deinit(&pool);
}

struct evictions {
    block_id ids[8];
    int n;
};

static void note_eviction(void *owner, block_id id) {
    struct evictions *evictions = owner;
    evictions->ids[evictions->n++] = id;
}

static void free_ones_go_first_then_the_least_recent(void **state) {
    (void)state;
    struct block_pool pool = pool_of(6);
    struct evictions evictions = {.n = 0};
    block_pool_listen(&pool, note_eviction, &evictions);
    block_id ids[6], more[4];
    assert_int_equal(block_pool_take(&pool, 5, ids), STATUS_OK);
    for (int i = 0; i < 4; i++) block_pool_set_findable(&pool, ids[i], true);
    block_pool_release_all(&pool, 4, ids); /* ages: 3 is the oldest, 0 the newest */
    block_pool_acquire(&pool, ids[2]);
    block_pool_release(&pool, ids[2]); /* now 3, 1, 0, 2 */
    assert_counts(&pool, 1, 4, 1);
    assert_int_equal(block_pool_take(&pool, 3, more), STATUS_OK);
    assert_int_equal(more[0], 5);
    assert_int_equal(more[1], ids[3]);
    assert_int_equal(more[2], ids[1]);
    assert_int_equal(evictions.n, 2);
    assert_int_equal(evictions.ids[0], ids[3]);
    assert_int_equal(evictions.ids[1], ids[1]);
    assert_int_equal(pool.n_evicted, 2);
    assert_false(block_pool_is_findable(&pool, more[1]));
    assert_counts(&pool, 0, 2, 4);
    block_pool_deinit(&pool);
}

static void a_stale_reference_is_seen(void **state) {
    (void)state;
    struct block_pool pool = pool_of(1);
    block_id id;
    assert_int_equal(block_pool_take(&pool, 1, &id), STATUS_OK);
    struct block_ref ref = block_pool_ref(&pool, id);
    block_pool_set_findable(&pool, id, true);
    block_pool_release(&pool, id);
    assert_true(block_pool_is_current(&pool, ref)); /* reusable: still the same content */
    assert_int_equal(block_pool_take(&pool, 1, &id), STATUS_OK);
    assert_int_equal(id, ref.id);
    assert_false(block_pool_is_current(&pool, ref));
    ref = block_pool_ref(&pool, id);
    block_pool_release(&pool, id);
    assert_false(block_pool_is_current(&pool, ref)); /* free */
    assert_false(block_pool_is_current(&pool, (struct block_ref){.id = BLOCK_NONE}));
    block_pool_deinit(&pool);
}

static void what_loses_its_content_becomes_free(void **state) {
    (void)state;
    struct block_pool pool = pool_of(3);
    block_id ids[3];
    assert_int_equal(block_pool_take(&pool, 3, ids), STATUS_OK);
    for (int i = 0; i < 3; i++) block_pool_set_findable(&pool, ids[i], true);
    block_pool_release_all(&pool, 3, ids);
    block_pool_set_findable(&pool, ids[1], false); /* the middle of the list */
    assert_counts(&pool, 1, 2, 0);
    block_pool_set_findable(&pool, ids[2], false); /* its oldest */
    block_pool_set_findable(&pool, ids[2], false); /* twice is once */
    assert_counts(&pool, 2, 1, 0);
    block_pool_set_findable(&pool, ids[0], false);
    assert_counts(&pool, 3, 0, 0);
    block_pool_deinit(&pool);
}

static void the_check_sees_damage(void **state) {
    (void)state;
    struct block_pool pool = pool_of(4);
    block_id ids[3];
    assert_int_equal(block_pool_take(&pool, 3, ids), STATUS_OK);
    block_pool_set_findable(&pool, ids[0], true);
    block_pool_set_findable(&pool, ids[1], true);
    block_pool_release(&pool, ids[0]);
    block_pool_release(&pool, ids[1]);
    assert_counts(&pool, 1, 2, 1);
    struct block_pool_entry kept[4];
    memcpy(kept, pool.entries, sizeof kept);
    struct block_pool good = pool;
#define DAMAGED_BY(change)                                                                                             \
    do {                                                                                                               \
        change;                                                                                                        \
        assert_non_null(block_pool_check(&pool));                                                                      \
        pool = good;                                                                                                   \
        memcpy(pool.entries, kept, sizeof kept);                                                                       \
        assert_null(block_pool_check(&pool));                                                                          \
    } while (0)
    DAMAGED_BY(pool.n_free++);
    DAMAGED_BY(pool.n_held--);
    DAMAGED_BY((pool.n_free--, pool.n_reusable++));
    DAMAGED_BY(pool.entries[ids[2]].n_refs = 0); /* a lost reference */
    DAMAGED_BY(pool.entries[ids[0]].n_refs = 1);
    DAMAGED_BY(pool.entries[ids[0]].is_findable = false);
    DAMAGED_BY(pool.entries[pool.first_free].is_findable = true);
    DAMAGED_BY(pool.entries[pool.first_free].next = pool.first_free); /* a circle */
    DAMAGED_BY(pool.entries[ids[1]].next = ids[0]);
    DAMAGED_BY(pool.entries[ids[1]].prev = BLOCK_NONE);
    DAMAGED_BY(pool.newest = ids[0]);
    DAMAGED_BY(pool.first_free = 9);
#undef DAMAGED_BY
    block_pool_deinit(&pool);
}

enum misuse { RELEASE_FREE, ACQUIRE_FREE, FREE_IS_FINDABLE, UNKNOWN_ID, UNKNOWN_ID_NONE, TAKE_NEGATIVE, N_MISUSES };

static void misuse_it(enum misuse misuse) {
    struct block_pool pool = pool_of(2);
    block_id id;
    switch (misuse) {
    case RELEASE_FREE: block_pool_release(&pool, 1); break;
    case ACQUIRE_FREE: block_pool_acquire(&pool, 1); break;
    case FREE_IS_FINDABLE: block_pool_set_findable(&pool, 1, true); break;
    case UNKNOWN_ID: block_pool_acquire(&pool, 2); break;
    case UNKNOWN_ID_NONE: block_pool_release(&pool, BLOCK_NONE); break;
    case TAKE_NEGATIVE:
        if (block_pool_take(&pool, -1, &id)) return;
        break;
    case N_MISUSES: break;
    }
}

static void misuse_aborts(void **state) {
    (void)state;
    for (enum misuse misuse = 0; misuse < N_MISUSES; misuse++) {
        pid_t child = fork();
        if (child == 0) {
            signal(SIGABRT, SIG_DFL);
            dup2(open("/dev/null", O_WRONLY), STDERR_FILENO);
            misuse_it(misuse);
            _exit(0);
        }
        int how;
        assert_int_equal(waitpid(child, &how, 0), child);
        if (!WIFSIGNALED(how) || WTERMSIG(how) != SIGABRT) fail_msg("misuse %d goes unnoticed", (int)misuse);
    }
}

static void init_may_fail(void **state) {
    (void)state;
    struct block_pool pool;
    long n_live = mem_n_live();
    assert_int_equal(block_pool_init(&pool, 0), STATUS_INVALID);
    block_pool_deinit(&pool);
    assert_int_equal(block_pool_init(&pool, -1), STATUS_INVALID);
    mem_fail_from(1);
    assert_int_equal(block_pool_init(&pool, 4), STATUS_NOMEM);
    mem_fail_from(0);
    block_pool_deinit(&pool);
    block_pool_deinit(&pool);
    assert_int_equal(mem_n_live(), n_live);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_block_goes_through_all_states),
        cmocka_unit_test(too_many_changes_nothing),
        cmocka_unit_test(free_ones_go_first_then_the_least_recent),
        cmocka_unit_test(a_stale_reference_is_seen),
        cmocka_unit_test(what_loses_its_content_becomes_free),
        cmocka_unit_test(the_check_sees_damage),
        cmocka_unit_test(misuse_aborts),
        cmocka_unit_test(init_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
