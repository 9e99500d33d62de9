/* bounds: the tolerances and targets of tests/bounds.json. */
#ifndef KVICK_TESTS_SUPPORT_BOUNDS_H
#define KVICK_TESTS_SUPPORT_BOUNDS_H

/* The value of an entry; fails the running test if there is none. */
double bounds_value(const char *name);

#endif
