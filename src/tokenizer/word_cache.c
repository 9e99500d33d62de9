#include "tokenizer/word_cache.h"

#include <string.h>

#include "base/mem.h"
#include "tokenizer/text_hash.h"

enum status word_cache_init(struct word_cache *cache, size_t text_bytes) {
    size_t n_entries = 64;
    while (n_entries < 16384 && n_entries < text_bytes / 8) n_entries *= 2;
    cache->entries = mem_alloc_array(n_entries, sizeof *cache->entries);
    cache->mask = (uint32_t)n_entries - 1;
    return cache->entries ? STATUS_OK : STATUS_NOMEM;
}

void word_cache_deinit(struct word_cache *cache) {
    mem_free(cache->entries);
    cache->entries = NULL;
}

struct word_cache_entry *word_cache_find(struct word_cache *cache, const char *word, size_t n_bytes, int *out_is_hit) {
    uint32_t hash = (uint32_t)text_hash(word, n_bytes);
    struct word_cache_entry *entry = &cache->entries[hash & cache->mask];
    *out_is_hit = entry->hash == hash && entry->n_bytes == n_bytes && memcmp(entry->bytes, word, n_bytes) == 0;
    if (!*out_is_hit) {
        entry->n_bytes = 0;
        entry->hash = hash;
    }
    return entry;
}

void word_cache_put(struct word_cache_entry *entry, const char *word, size_t n_bytes, const int32_t *ids,
                    size_t n_ids) {
    if (n_ids > WORD_CACHE_MAX_IDS) return;
    memcpy(entry->bytes, word, n_bytes);
    if (n_ids) memcpy(entry->ids, ids, n_ids * sizeof *ids);
    entry->n_bytes = (uint8_t)n_bytes;
    entry->n_ids = (uint8_t)n_ids;
}
