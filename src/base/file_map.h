/* file_map: a whole file, read-only, in memory.
 *
 * A file that is cut while it is mapped gives SIGBUS on access; no check can prevent that, OPERATIONS.md says so.
 * Thread: any, const after open.   Memory: the mapping, until close. */
#ifndef KVICK_BASE_FILE_MAP_H
#define KVICK_BASE_FILE_MAP_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

struct file_map {
    const uint8_t *bytes; /* NULL for an empty file */
    size_t n_bytes;
};

/* Errors: STATUS_IO with the system's reason in note (no path in it), also for directories and devices. */
WARN_UNUSED enum status file_map_open(struct file_map *map, const char *path, struct status_note *note);
/* Gives back the memory of the pages that [off, off + n_bytes) touches, but for a last one that goes on behind it,
 * until somebody reads them again. */
void file_map_release(const struct file_map *map, size_t off, size_t n_bytes);
void file_map_close(struct file_map *map);

#endif
