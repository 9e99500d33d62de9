#include "cmd/cmd.h"

int cmd_tokenize(const struct options *options, int n_words, const char **words) {
    (void)options;
    (void)n_words;
    (void)words;
    return cmd_usage("tokenize", "not built yet");
}
