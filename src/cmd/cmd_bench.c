#include "cmd/cmd.h"

int cmd_bench(const struct options *options, int n_words, const char **words) {
    (void)options;
    (void)n_words;
    (void)words;
    return cmd_usage("bench", "not built yet");
}
