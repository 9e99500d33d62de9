/* config_file: options of a command from a TOML file. */
#ifndef KVICK_CMD_CONFIG_FILE_H
#define KVICK_CMD_CONFIG_FILE_H

#include "base/options.h"
#include "cmd/toml_file.h"

/* Offers every value of the file; options point into file from then on, which is the caller's to close.
 * Errors: as toml_file_open; STATUS_INVALID with "PATH:LINE: name" for what is no option, or of the wrong type. */
WARN_UNUSED enum status config_file_read(struct toml_file *file, const char *path, struct options *options,
                                         unsigned command, struct status_note *note);

#endif
