/* serve_config: what serve goes by: its options from flags, environment and file, read and checked.
 *
 * Thread: main.   Memory: texts are those of the command line, the environment, and file. */
#ifndef KVICK_CMD_SERVE_CONFIG_H
#define KVICK_CMD_SERVE_CONFIG_H

#include "base/log.h"
#include "base/options.h"
#include "cmd/toml_file.h"
#include "observe/slo.h"

/* What requests of a class may cost and are promised; 0: nothing is said. */
struct serve_class {
    int max_prompt_tokens, max_queued;
    int64_t slo_ns[SLO_N_KINDS];
};

struct serve_config {
    struct options options; /* of all origins */
    struct options engine;  /* what follows from them for the engine */
    struct toml_file file;
    const char *model; /* path or name */
    struct serve_class classes[REQUEST_N_CLASSES];
    bool moves_over_cap; /* to class batch, instead of refusing */
    enum log_level log_level;
    enum log_format log_format;
    char admin_host[256]; /* "": no listener of its own */
    int admin_port;
};

/* flags: as parsed; words: [n_words] the rest of the command line. serve_config_deinit in any case.
 * Errors: STATUS_INVALID with the option, and where it was set, in note. */
WARN_UNUSED enum status serve_config_read(struct serve_config *config, const struct options *flags, int n_words,
                                          const char **words, struct status_note *note);
void serve_config_deinit(struct serve_config *config);

/* A loopback address: nobody from elsewhere can come in. */
bool serve_config_is_loopback(const char *host);

#endif
