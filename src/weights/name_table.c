#include "weights/name_table.h"

#include <string.h>
#include <sys/random.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/utf8.h"

#define MAX_QUOTED_BYTES 96

static uint64_t rotate(uint64_t x, int n_bits) {
    return x << n_bits | x >> (64 - n_bits);
}

static void sip_round(uint64_t v[4]) {
    v[0] += v[1];
    v[2] += v[3];
    v[1] = rotate(v[1], 13) ^ v[0];
    v[3] = rotate(v[3], 16) ^ v[2];
    v[0] = rotate(v[0], 32);
    v[2] += v[1];
    v[0] += v[3];
    v[1] = rotate(v[1], 17) ^ v[2];
    v[3] = rotate(v[3], 21) ^ v[0];
    v[2] = rotate(v[2], 32);
}

static uint64_t hash_of(const uint64_t key[2], const char *bytes, size_t n_bytes) {
    /* The four start words are the paper's ASCII constant. */
    uint64_t v[4] = {key[0] ^ 0x736f6d6570736575, key[1] ^ 0x646f72616e646f6d, key[0] ^ 0x6c7967656e657261,
                     key[1] ^ 0x7465646279746573};
    size_t at = 0;
    for (bool is_last = false; !is_last; at += 8) {
        uint64_t word = 0;
        is_last = n_bytes - at < 8;
        memcpy(&word, bytes + at, is_last ? n_bytes - at : 8);
        if (is_last) word |= (uint64_t)n_bytes << 56;
        v[3] ^= word;
        sip_round(v);
        v[0] ^= word;
    }
    v[2] ^= 0xff;
    for (int i = 0; i < 3; i++) sip_round(v);
    return v[0] ^ v[1] ^ v[2] ^ v[3];
}

enum status name_table_init(struct name_table *table, size_t max_names) {
    *table = (struct name_table){.max_names = max_names};
    size_t n_slots = 8;
    while (n_slots / 2 < max_names) {
        if (n_slots > SIZE_MAX / 4) return STATUS_NOMEM;
        n_slots *= 2;
    }
    table->slots = mem_alloc_array(n_slots, sizeof *table->slots);
    if (!table->slots) return STATUS_NOMEM;
    table->mask = n_slots - 1;
    if (getrandom(table->hash_key, sizeof table->hash_key, GRND_NONBLOCK) != (ssize_t)sizeof table->hash_key) {
        /* An early boot without entropy: still not to be guessed from the file alone. */
        table->hash_key[0] = (uint64_t)clock_now_ns();
        table->hash_key[1] = (uint64_t)(uintptr_t)table->slots;
    }
    return STATUS_OK;
}

void name_table_deinit(struct name_table *table) {
    mem_free(table->slots);
    *table = (struct name_table){0};
}

/* The slot that holds the name, or the free one where it belongs. */
static struct name_slot *slot_of(const struct name_table *table, const char *name, size_t n_bytes) {
    size_t at = (size_t)hash_of(table->hash_key, name, n_bytes) & table->mask;
    for (;; at = (at + 1) & table->mask) {
        struct name_slot *slot = &table->slots[at];
        if (!slot->name) return slot;
        if (slot->n_bytes == n_bytes && memcmp(slot->name, name, n_bytes) == 0) return slot;
    }
}

bool name_table_add(struct name_table *table, const char *name, uint32_t n_bytes, uint32_t idx) {
    REQUIRE(table->n_names < table->max_names);
    struct name_slot *slot = slot_of(table, name, n_bytes);
    if (slot->name) return false;
    *slot = (struct name_slot){.name = name, .n_bytes = n_bytes, .idx = idx};
    table->n_names++;
    return true;
}

bool name_table_find(const struct name_table *table, const char *name, size_t n_bytes, uint32_t *out_idx) {
    if (!table->slots) return false;
    const struct name_slot *slot = slot_of(table, name, n_bytes);
    if (!slot->name) return false;
    *out_idx = slot->idx;
    return true;
}

const char *name_table_name_fault(const char *name, size_t n_bytes) {
    if (n_bytes == 0) return "is empty";
    for (size_t at = 0; at < n_bytes;) {
        uint32_t code;
        int n = utf8_decode(name + at, n_bytes - at, &code);
        if (n == 0) return "is no valid UTF-8";
        /* C0, DEL and C1 could steer a terminal; U+2028/2029 break a line. */
        if (code < 0x20 || (code >= 0x7f && code < 0xa0) || code == 0x2028 || code == 0x2029)
            return "holds a control character";
        at += (size_t)n;
    }
    return NULL;
}

int name_table_quoted_bytes(const char *name, size_t n_bytes) {
    return (int)utf8_valid_prefix(name, n_bytes < MAX_QUOTED_BYTES ? n_bytes : MAX_QUOTED_BYTES);
}
