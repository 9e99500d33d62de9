/* test: what every cmocka program includes, and where the shared golden data lies. */
#ifndef KVICK_TESTS_SUPPORT_TEST_H
#define KVICK_TESTS_SUPPORT_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* $KVICK_GOLDEN, else ../shared/golden from the folder the test runs in (the project's root); NULL if there is none. */
const char *test_golden_dir(void);

/* Path of a file below the golden folder in a static buffer, or skips the running test with a visible line if the
 * folder is absent. A file that is missing although the folder is there fails the test. */
const char *test_golden_file(const char *name);

/* A file below tests/ of the project (the tests run in the project's root). */
const char *test_own_file(const char *name);

/* Path of a real model in the download cache, or skips the running test. name: "smollm2" or "gemma3-270m". */
const char *test_model_file(const char *name);

/* True in a sanitizer's build unless KVICK_LONG is set: tests that sample may then sample less. */
bool test_is_slow_build(void);

/* Skips the running test in a sanitizer's build unless KVICK_LONG is set: a real model takes minutes there. */
void test_skip_if_slow(void);

#endif
