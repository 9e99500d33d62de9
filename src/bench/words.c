#include "bench/words.h"

#include "base/rng.h"

static const char *const words[] = {
    "river", "stone",  "cloud",  "house", "green",  "small",  "water",   "light",   "night",  "paper",  "table",
    "music", "garden", "winter", "road",  "train",  "city",   "bridge",  "window",  "door",   "summer", "morning",
    "bread", "fish",   "horse",  "bird",  "tree",   "flower", "island",  "ocean",   "market", "school", "letter",
    "story", "king",   "ship",   "wind",  "rain",   "snow",   "fire",    "gold",    "silver", "iron",   "glass",
    "clock", "engine", "field",  "hill",  "valley", "forest", "village", "kitchen", "hand",   "voice",  "number",
    "plan",  "color",  "shape",  "north", "south",  "east",   "west",    "early",   "late"};

#define N_WORDS (sizeof words / sizeof words[0])

enum status words_append(struct str *out, uint64_t seed, uint32_t text_idx, int n_words) {
    enum status status = STATUS_OK;
    for (int i = 0; i < n_words && !status; i++) {
        size_t word = (size_t)(rng_uniform(seed, text_idx, (uint32_t)i) * (double)N_WORDS);
        status = str_append(out, " ", 1);
        if (!status) status = str_append_text(out, words[word]);
    }
    return status;
}
