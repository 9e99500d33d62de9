/* cache_dir: folders for what may be made again: $XDG_CACHE_HOME/kvick/PART, else $HOME/.cache/kvick/PART.
 *
 * Thread: any, while nobody changes the environment.   Source: XDG Base Directory specification. */
#ifndef KVICK_BASE_CACHE_DIR_H
#define KVICK_BASE_CACHE_DIR_H

#include <stdbool.h>

#define CACHE_DIR_MAX_BYTES 4096

/* False if neither variable is an absolute path, or it leaves no room for the name of a file. */
bool cache_dir_find(const char *part, char out[CACHE_DIR_MAX_BYTES]);

/* The folder and those above it. What cannot be made shows when a file there is opened. */
void cache_dir_make(const char *dir);

#endif
