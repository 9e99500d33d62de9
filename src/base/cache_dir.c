#include "base/cache_dir.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#define FILE_BYTES 128 /* for a file's name */

bool cache_dir_find(const char *part, char out[CACHE_DIR_MAX_BYTES]) {
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    int n;
    if (cache && cache[0] == '/') /* the XDG specification ignores relative paths */
        n = snprintf(out, CACHE_DIR_MAX_BYTES, "%s/kvick/%s", cache, part);
    else if (home && home[0] == '/')
        n = snprintf(out, CACHE_DIR_MAX_BYTES, "%s/.cache/kvick/%s", home, part);
    else
        return false;
    return n < CACHE_DIR_MAX_BYTES - FILE_BYTES;
}

void cache_dir_make(const char *dir) {
    char path[CACHE_DIR_MAX_BYTES];
    snprintf(path, sizeof path, "%s", dir);
    for (char *at = path + 1; *at; at++) {
        if (*at != '/') continue;
        *at = 0;
        mkdir(path, 0777);
        *at = '/';
    }
    mkdir(path, 0777);
}
