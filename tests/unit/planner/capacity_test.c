#include "planner/capacity.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "kvcache/kv_layout.h"
#include "support/test.h"

#define MIB ((size_t)1 << 20)
#define TOKEN_BYTES ((size_t)2048) /* of four layers of two heads, in halves */

static char root[64];
static const struct model_config config = {
    .n_layers = 4, .d_model = 256, .n_heads = 4, .n_kv_heads = 2, .head_dim = 64, .d_ff = 512};

static int set_up(void **state) {
    (void)state;
    strcpy(root, "/tmp/kvick-root-XXXXXX");
    assert_non_null(mkdtemp(root));
    return 0;
}

static int tear_down(void **state) {
    char command[128];
    (void)state;
    snprintf(command, sizeof command, "rm -rf '%s'", root);
    return system(command) ? -1 : 0;
}

static void put(const char *name, const char *text) {
    char path[512];
    snprintf(path, sizeof path, "%s/%s", root, name);
    for (char *at = path + strlen(root) + 1; (at = strchr(at, '/')); at++) {
        *at = 0;
        mkdir(path, 0777);
        *at = '/';
    }
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

static struct capacity_limits limits_of(void) {
    struct capacity_limits limits;
    capacity_read_limits(&limits, root);
    return limits;
}

#define MEMINFO "MemTotal:       16000000 kB\nMemFree: 1 kB\nMemAvailable:   8388608 kB\n"

static void the_machine_is_the_limit_without_groups(void **state) {
    (void)state;
    put("proc/meminfo", MEMINFO);
    struct capacity_limits limits = limits_of();
    assert_true(limits.memory_bytes == 8192 * MIB);
    assert_non_null(strstr(limits.memory_source, "machine"));
}

static void a_group_of_version_2_is_the_limit(void **state) {
    (void)state;
    put("proc/meminfo", MEMINFO);
    put("proc/self/cgroup", "0::/jobs/one\n");
    put("sys/fs/cgroup/jobs/one/memory.max", "max\n");
    put("sys/fs/cgroup/jobs/memory.max", "2147483648\n");
    put("sys/fs/cgroup/jobs/memory.current", "1073741824\n");
    put("sys/fs/cgroup/jobs/memory.stat", "anon 5\ninactive_file 536870912\nactive_file 3\n");
    struct capacity_limits limits = limits_of();
    assert_true(limits.memory_bytes == 1536 * MIB); /* the limit, less what is used and cannot be given up */
    assert_non_null(strstr(limits.memory_source, "/jobs"));
    put("sys/fs/cgroup/jobs/one/memory.max", "1048576\n");
    assert_true(limits_of().memory_bytes == MIB);
}

static void a_container_sees_its_group_at_the_root(void **state) {
    (void)state;
    put("proc/meminfo", MEMINFO);
    put("proc/self/cgroup", "0::/\n");
    put("sys/fs/cgroup/memory.max", "104857600\n");
    assert_true(limits_of().memory_bytes == 100 * MIB);
}

static void a_group_of_version_1_is_the_limit(void **state) {
    (void)state;
    put("proc/meminfo", MEMINFO);
    put("proc/self/cgroup", "4:memory:/docker/x\n1:cpu:/\n0::/\n");
    put("sys/fs/cgroup/memory/docker/x/memory.limit_in_bytes", "209715200\n");
    put("sys/fs/cgroup/memory/docker/x/memory.usage_in_bytes", "104857600\n");
    assert_true(limits_of().memory_bytes == 100 * MIB);
    /* What version 1 writes for no limit. */
    put("sys/fs/cgroup/memory/docker/x/memory.limit_in_bytes", "9223372036854771712\n");
    assert_true(limits_of().memory_bytes == 8192 * MIB);
}

static void garbage_is_no_limit(void **state) {
    (void)state;
    put("proc/meminfo", MEMINFO);
    put("proc/self/cgroup", "0\n:\n0::/a\n");
    put("sys/fs/cgroup/a/memory.max", "many\n");
    assert_true(limits_of().memory_bytes == 8192 * MIB);
}

static struct capacity_request request_of(void) {
    return (struct capacity_request){.weight_bytes = 100 * MIB,
                                     .kv_dtype = DTYPE_F16,
                                     .block_tokens = 16,
                                     .max_context = 1024,
                                     .max_sequences = 4,
                                     .max_running = 4,
                                     .max_chunk = 508,
                                     .max_rows = 512,
                                     .max_logit_rows = 4};
}

static struct status_note note;

static enum status plan(struct capacity *out, size_t memory_bytes, const struct capacity_request *request) {
    struct capacity_limits limits = {memory_bytes, "a test"};
    note.text[0] = 0;
    return capacity_plan(out, &limits, request, &config, 1000, &note);
}

static void plenty_gives_every_context_its_room(void **state) {
    (void)state;
    struct capacity_request request = request_of();
    struct capacity capacity;
    assert_int_equal(plan(&capacity, 10000 * MIB, &request), STATUS_OK);
    assert_int_equal(capacity.kv_tokens, 4 * (1024 + 16));
    assert_true(capacity.kv_bytes == (size_t)capacity.kv_tokens * TOKEN_BYTES);
}

/* Few long requests or many usual ones, whichever is more. */
static void all_that_run_find_room_for_usual_requests(void **state) {
    (void)state;
    struct capacity_request request = request_of();
    struct capacity capacity;
    request.usual_tokens = 512;
    request.max_running = 64;
    assert_int_equal(plan(&capacity, 10000 * MIB, &request), STATUS_OK);
    assert_int_equal(capacity.kv_tokens, 64 * (512 + 16));
    request.max_context = 256;
    assert_int_equal(plan(&capacity, 10000 * MIB, &request), STATUS_OK);
    assert_int_equal(capacity.kv_tokens, 64 * (256 + 16));
    request.max_context = 16384;
    assert_int_equal(plan(&capacity, 10000 * MIB, &request), STATUS_OK);
    assert_int_equal(capacity.kv_tokens, 4 * (16384 + 16));
}

/* Between large blocks the pool has gaps. */
static void the_pool_is_counted_as_it_lies(void **state) {
    (void)state;
    struct model_config large = config;
    struct capacity_request request = request_of();
    struct capacity_limits limits = {10000 * MIB, "a test"};
    struct capacity capacity;
    struct kv_layout layout;
    large.n_layers = 30;
    large.n_kv_heads = 3;
    request.kv_dtype = DTYPE_I8;
    assert_int_equal(capacity_plan(&capacity, &limits, &request, &large, 1000, &note), STATUS_OK);
    assert_int_equal(kv_layout_init(&layout, DTYPE_I8, 30, 3, 64, 16, capacity.kv_tokens / 16, &note), STATUS_OK);
    assert_true(capacity.kv_bytes == layout.pool_bytes);
    assert_true(layout.pool_bytes > (size_t)capacity.kv_tokens * kv_layout_token_bytes(&layout));
    large.head_dim = 65;
    assert_int_equal(capacity_plan(&capacity, &limits, &request, &large, 1000, &note), STATUS_INVALID);
    assert_non_null(strstr(note.text, "head size 65"));
}

/* What windows leave goes to more tokens. */
static void windows_take_less_of_the_pool(void **state) {
    (void)state;
    struct capacity_request request = request_of();
    struct model_config windowed = config;
    struct capacity_limits limits = {4000 * MIB, "a test"};
    struct capacity whole, less;
    windowed.layers[0].window = windowed.layers[1].window = windowed.layers[2].window = 64;
    request.max_context = 100000;
    request.max_sequences = 1000;
    assert_int_equal(capacity_plan(&whole, &limits, &request, &config, 1000, &note), STATUS_OK);
    assert_int_equal(capacity_plan(&less, &limits, &request, &windowed, 1000, &note), STATUS_OK);
    int n_windowed = capacity_windowed_blocks(64, less.kv_tokens / 16, 4, 508, 16);
    assert_int_equal(n_windowed, 2 * 4 * ((64 + 64 + 508 + 2 * 16) / 16 + 1));
    assert_true(less.kv_bytes == ((size_t)less.kv_tokens + 3 * 16 * (size_t)n_windowed) * (TOKEN_BYTES / 4));
    assert_true(less.kv_tokens > 3 * whole.kv_tokens);
    assert_int_equal(capacity_windowed_blocks(64, 10, 4, 508, 16), 10);
    assert_int_equal(capacity_windowed_blocks(0, 5000, 4, 508, 16), 5000);
}

static void little_gives_what_is_left(void **state) {
    (void)state;
    struct capacity_request request = request_of();
    struct capacity capacity;
    assert_int_equal(plan(&capacity, 100 * MIB, &request), STATUS_LIMIT);
    assert_non_null(strstr(note.text, "1024 tokens"));
    assert_non_null(strstr(note.text, "a test"));
    size_t memory_bytes = 100 * MIB;
    while (plan(&capacity, memory_bytes, &request)) memory_bytes += MIB;
    size_t used = request.weight_bytes + capacity.activation_bytes + capacity.logit_bytes + capacity.margin_bytes +
                  capacity.kv_bytes;
    assert_true(used <= memory_bytes && used + 2 * MIB > memory_bytes);
    assert_true(capacity.kv_tokens >= 1024 + 16 && capacity.kv_tokens < 4 * (1024 + 16));
    assert_int_equal(capacity.kv_tokens % 16, 0);
}

static void the_operator_is_obeyed(void **state) {
    (void)state;
    struct capacity_request request = request_of();
    struct capacity capacity;
    request.kv_bytes = 2048 * TOKEN_BYTES;
    assert_int_equal(plan(&capacity, MIB, &request), STATUS_OK);
    assert_int_equal(capacity.kv_tokens, 2048);
    request.kv_bytes = 20000 * TOKEN_BYTES; /* more than all contexts: cache */
    assert_int_equal(plan(&capacity, MIB, &request), STATUS_OK);
    assert_int_equal(capacity.kv_tokens, 20000);
    request.kv_bytes = 1024 * TOKEN_BYTES;
    assert_int_equal(plan(&capacity, 10000 * MIB, &request), STATUS_LIMIT);
    assert_non_null(strstr(note.text, "--kv-cache-memory-bytes: 2097152"));
}

/* The plan of the longest context has room for all of them, that of a block more has not. */
static void the_longest_context_leaves_room_for_all(void **state) {
    (void)state;
    for (size_t memory_bytes = 110 * MIB; memory_bytes < 140 * MIB; memory_bytes += 3 * MIB + 12345) {
        struct capacity_request request = request_of();
        struct capacity_limits limits = {memory_bytes, "a test"};
        struct capacity capacity;
        request.max_context = 100000;
        int longest = capacity_max_context(&limits, &request, &config, 1000);
        if (longest == 0) continue;
        request.max_context = longest;
        assert_int_equal(plan(&capacity, memory_bytes, &request), STATUS_OK);
        assert_true(capacity.kv_tokens >= 4 * (longest + 16));
        request.max_context = longest + 16;
        if (plan(&capacity, memory_bytes, &request) == STATUS_OK) assert_true(capacity.kv_tokens < 4 * (longest + 32));
    }
    struct capacity_request request = request_of();
    struct capacity_limits plenty = {10000 * MIB, "a test"}, nothing = {MIB, "a test"};
    assert_int_equal(capacity_max_context(&plenty, &request, &config, 1000), 1024);
    assert_int_equal(capacity_max_context(&nothing, &request, &config, 1000), 0);
    request.kv_bytes = 4 * TOKEN_BYTES * (512 + 16);
    assert_int_equal(capacity_max_context(&nothing, &request, &config, 1000), 512);
}

static void the_table_names_every_pool(void **state) {
    (void)state;
    struct capacity_request request = request_of();
    struct capacity capacity;
    char text[2048] = "";
    assert_int_equal(plan(&capacity, 10000 * MIB, &request), STATUS_OK);
    FILE *file = fmemopen(text, sizeof text, "w");
    capacity_print(file, &capacity, 2);
    fclose(file);
    static const char *const words[] = {"weights", "steps", "logits", "kv pool", "4160 tokens", "threads"};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (!strstr(text, words[i])) fail_msg("no '%s' in\n%s", words[i], text);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(the_machine_is_the_limit_without_groups, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_group_of_version_2_is_the_limit, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_container_sees_its_group_at_the_root, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_group_of_version_1_is_the_limit, set_up, tear_down),
        cmocka_unit_test_setup_teardown(garbage_is_no_limit, set_up, tear_down),
        cmocka_unit_test(plenty_gives_every_context_its_room),
        cmocka_unit_test(all_that_run_find_room_for_usual_requests),
        cmocka_unit_test(the_pool_is_counted_as_it_lies),
        cmocka_unit_test(windows_take_less_of_the_pool),
        cmocka_unit_test(little_gives_what_is_left),
        cmocka_unit_test(the_operator_is_obeyed),
        cmocka_unit_test(the_longest_context_leaves_room_for_all),
        cmocka_unit_test(the_table_names_every_pool),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
