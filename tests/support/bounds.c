#include "support/bounds.h"

#include <jansson.h>

#include "support/test.h"

double bounds_value(const char *name) {
    json_error_t error;
    json_t *root = json_load_file(test_own_file("bounds.json"), JSON_REJECT_DUPLICATES, &error);
    const json_t *value = json_object_get(json_object_get(json_object_get(root, "entries"), name), "value");
    if (!json_is_number(value)) fail_msg("tests/bounds.json has no number %s", name);
    double number = json_number_value(value);
    json_decref(root);
    return number;
}
