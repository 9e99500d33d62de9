#include "cmd/cmd.h"

int cmd_render(const struct options *options, int n_words, const char **words) {
    (void)options;
    (void)n_words;
    (void)words;
    return cmd_usage("render", "not built yet");
}
