/* block_map: what each block of the first KV group is used for, as a picture of at most BLOCK_MAP_MAX_CELLS cells.
 *
 * One who watches asks for it by engine_client_ask_map; the engine fills it between two layers, and it may be read from
 * then on until it is asked for again.   Memory: a plain value of the asker's that outlives the engine. */
#ifndef KVICK_ENGINE_BLOCK_MAP_H
#define KVICK_ENGINE_BLOCK_MAP_H

#include <stdatomic.h>
#include <stdint.h>

#define BLOCK_MAP_MAX_CELLS 2000

/* PINNED before SHARED before HELD, where a block is several. SHARED: held more than once. */
enum block_use { BLOCK_USE_FREE, BLOCK_USE_REUSABLE, BLOCK_USE_HELD, BLOCK_USE_SHARED, BLOCK_USE_PINNED, BLOCK_N_USES };

enum block_map_state { BLOCK_MAP_EMPTY, BLOCK_MAP_ASKED, BLOCK_MAP_FILLED };

struct block_map {
    atomic_int state;                   /* FILLED is stored with release */
    int n_blocks, n_cells, cell_blocks; /* the last cell may have fewer */
    uint32_t counts[BLOCK_MAP_MAX_CELLS][BLOCK_N_USES];
};

struct kv_groups;
struct kv_pins;

/* Thread: engine. */
void block_map_fill(struct block_map *map, const struct kv_groups *groups, const struct kv_pins *pins);

#endif
