#include "kvcache/kv_groups.h"

#include "base/mem.h"

/* The owner of a windowed pool's evictions is its group. */
static void on_evict(void *owner, block_id block) {
    struct kv_group *group = owner;
    block_id node = group->node_of[block];
    if (node == BLOCK_NONE) BUG("block %u is evicted and belongs to no prefix", block);
    group->node_of[block] = BLOCK_NONE;
    group->of_node[node] = BLOCK_NONE;
}

static void on_drop(void *owner, block_id node) {
    struct kv_groups *groups = owner;
    for (int g = 1; g < groups->n_groups; g++) {
        struct kv_group *group = &groups->groups[g];
        block_id block = group->of_node[node];
        if (block == BLOCK_NONE) continue;
        group->of_node[node] = group->node_of[block] = BLOCK_NONE;
        block_pool_set_findable(&group->pool, block, false);
    }
}

static block_id *make_map(int n_blocks) {
    block_id *map = mem_alloc_array((size_t)n_blocks, sizeof *map);
    for (int i = 0; map && i < n_blocks; i++) map[i] = BLOCK_NONE;
    return map;
}

static enum status init_group(struct kv_groups *groups, int g, const struct kv_groups_options *options) {
    struct kv_group *group = &groups->groups[g];
    group->window = options->windows[g];
    enum status status = block_pool_init(&group->pool, options->n_blocks[g]);
    if (status || g == 0) return status;
    group->of_node = make_map(options->n_blocks[0]);
    group->node_of = make_map(options->n_blocks[g]);
    block_pool_listen(&group->pool, on_evict, group);
    return group->of_node && group->node_of ? STATUS_OK : STATUS_NOMEM;
}

enum status kv_groups_init(struct kv_groups *groups, const struct kv_groups_options *options) {
    *groups = (struct kv_groups){
        .n_groups = options->n_groups, .block_tokens = options->block_tokens, .tile_tokens = options->tile_tokens};
    bool is_valid = options->n_groups >= 1 && options->n_groups <= KV_LAYERS_MAX_GROUPS && options->block_tokens >= 1 &&
                    options->tile_tokens >= 1 && options->windows[0] == 0;
    for (int g = 1; is_valid && g < options->n_groups; g++) is_valid = options->windows[g] >= 1;
    enum status status = is_valid ? STATUS_OK : STATUS_INVALID;
    for (int g = 0; !status && g < options->n_groups; g++) status = init_group(groups, g, options);
    if (!status && options->has_index) {
        groups->found = make_map(options->n_blocks[0]);
        status = groups->found ? prefix_index_init(&groups->index, &groups->groups[0].pool, options->block_tokens,
                                                   options->identity, options->n_identity, options->hash)
                               : STATUS_NOMEM;
        groups->has_index = !status;
    }
    if (status)
        kv_groups_deinit(groups);
    else if (groups->has_index)
        prefix_index_listen(&groups->index, on_drop, groups);
    return status;
}

void kv_groups_deinit(struct kv_groups *groups) {
    if (groups->has_index) prefix_index_deinit(&groups->index);
    for (int g = 0; g < KV_LAYERS_MAX_GROUPS; g++) {
        block_pool_deinit(&groups->groups[g].pool);
        mem_free(groups->groups[g].of_node);
        mem_free(groups->groups[g].node_of);
    }
    mem_free(groups->found);
    *groups = (struct kv_groups){0};
}

int kv_groups_first_block(const struct kv_groups *groups, int group, int pos) {
    int window = groups->groups[group].window, first_key = pos - window + 1;
    if (window == 0 || first_key <= 0) return 0;
    return first_key / groups->tile_tokens * groups->tile_tokens / groups->block_tokens;
}

int kv_groups_n_peak(const struct kv_groups *groups, int group, int n_tokens, int max_rows) {
    int n_blocks = (n_tokens + groups->block_tokens - 1) / groups->block_tokens;
    int window = groups->groups[group].window;
    if (window == 0) return n_blocks;
    /* Both ends may lie inside a block, the beginning inside a tile. */
    long n_windowed = ((long)window + groups->tile_tokens + max_rows) / groups->block_tokens + 2;
    return n_windowed < n_blocks ? (int)n_windowed : n_blocks;
}

block_id kv_groups_of_node(const struct kv_groups *groups, int group, block_id node) {
    return group == 0 ? node : groups->groups[group].of_node[node];
}

void kv_groups_attach(struct kv_groups *groups, int group, block_id node, block_id block) {
    struct kv_group *windowed = &groups->groups[group];
    REQUIRE(group >= 1 && block_pool_is_findable(&groups->groups[0].pool, node));
    REQUIRE(windowed->of_node[node] == BLOCK_NONE && windowed->node_of[block] == BLOCK_NONE);
    windowed->of_node[node] = block;
    windowed->node_of[block] = node;
    block_pool_set_findable(&windowed->pool, block, true);
}

static const char *check_windowed(const struct kv_groups *groups, const struct kv_group *group) {
    const struct block_pool *nodes = &groups->groups[0].pool;
    for (int i = 0; i < group->pool.n_blocks; i++) {
        block_id block = (block_id)i, node = group->node_of[i];
        if (block_pool_is_findable(&group->pool, block) != (node != BLOCK_NONE))
            return "a windowed block is findable and belongs to no prefix, or the reverse";
        if (node != BLOCK_NONE && group->of_node[node] != block) return "a windowed block and its prefix disagree";
    }
    for (int i = 0; i < nodes->n_blocks; i++) {
        block_id block = group->of_node[i];
        if (block == BLOCK_NONE) continue;
        if (group->node_of[block] != (block_id)i) return "a prefix and its windowed block disagree";
        if (!block_pool_is_findable(nodes, (block_id)i)) return "a windowed block belongs to a prefix that is gone";
    }
    return NULL;
}

const char *kv_groups_check(const struct kv_groups *groups) {
    for (int g = 0; g < groups->n_groups; g++) {
        const char *broken = block_pool_check(&groups->groups[g].pool);
        if (!broken && g > 0) broken = check_windowed(groups, &groups->groups[g]);
        if (broken) return broken;
    }
    return groups->has_index ? prefix_index_check(&groups->index) : NULL;
}
