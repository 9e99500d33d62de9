#include "support/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

const char *test_golden_dir(void) {
    const char *dir = getenv("KVICK_GOLDEN");
    if (!dir || !*dir) dir = "../shared/golden";
    return access(dir, R_OK) == 0 ? dir : NULL;
}

const char *test_golden_file(const char *name) {
    static char path[1024];
    const char *dir = test_golden_dir();
    if (!dir) {
        print_message("no golden data (KVICK_GOLDEN): %s is not tested\n", name);
        skip();
    }
    snprintf(path, sizeof path, "%s/%s", dir, name);
    if (access(path, R_OK) != 0) fail_msg("%s is missing", path);
    return path;
}

const char *test_own_file(const char *name) {
    static char path[1024];
    snprintf(path, sizeof path, "tests/%s", name);
    return path;
}

const char *test_model_file(const char *name) {
    static char path[1024];
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    if (cache && *cache)
        snprintf(path, sizeof path, "%s/kvick/models/%s.gguf", cache, name);
    else
        snprintf(path, sizeof path, "%s/.cache/kvick/models/%s.gguf", home ? home : "", name);
    if (access(path, R_OK) != 0) {
        print_message("%s is not downloaded (scripts/fetch-model %s): not tested\n", name, name);
        skip();
    }
    return path;
}

bool test_is_slow_build(void) {
#ifdef KVICK_SANITIZED
    return getenv("KVICK_LONG") == NULL;
#else
    return false;
#endif
}

void test_skip_if_slow(void) {
    if (!test_is_slow_build()) return;
    print_message("a real model under a sanitizer runs only with KVICK_LONG: not tested\n");
    skip();
}
