/* The routes of the table, of src/api/openapi.json and of docs/API.md are the same ones. */

#include <ctype.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "api/api_openapi.h"
#include "api/api_routes.h"
#include "base/file_map.h"
#include "support/test.h"

static json_t *paths_of(json_t **out_root) {
    size_t n_bytes;
    json_error_t error;
    const char *text = api_openapi_text(&n_bytes);
    *out_root = json_loadb(text, n_bytes, JSON_REJECT_DUPLICATES, &error);
    if (!*out_root) fail_msg("openapi.json: %s (line %d)", error.text, error.line);
    return json_object_get(*out_root, "paths");
}

static void test_every_route_is_described(void **state) {
    int n_routes, n_described = 0;
    json_t *root, *paths = paths_of(&root), *methods, *about;
    const char *path, *method;
    const struct http_route *routes = api_routes_table(&n_routes);
    (void)state;
    for (int i = 0; i < n_routes; i++) {
        char lower[16] = "";
        for (size_t k = 0; routes[i].method[k] && k + 1 < sizeof lower; k++)
            lower[k] = (char)tolower((unsigned char)routes[i].method[k]);
        if (!json_object_get(json_object_get(paths, routes[i].path), lower))
            fail_msg("%s %s is served and not in openapi.json", routes[i].method, routes[i].path);
    }
    json_object_foreach(paths, path, methods) {
        json_object_foreach(methods, method, about) {
            if (!json_string_length(json_object_get(about, "summary"))) fail_msg("%s %s has no summary", method, path);
            n_described++;
        }
    }
    assert_int_equal(n_described, n_routes); /* none is described that is not served */
    json_decref(root);
}

static void test_the_document_lists_them(void **state) {
    int n_routes, n_rows = 0;
    struct file_map map;
    struct status_note note;
    char row[256];
    const struct http_route *routes = api_routes_table(&n_routes);
    (void)state;
    assert_int_equal(file_map_open(&map, "docs/API.md", &note), STATUS_OK);
    for (int i = 0; i < n_routes; i++) {
        snprintf(row, sizeof row, "\n| `%s %s` |", routes[i].method, routes[i].path);
        if (!memmem(map.bytes, map.n_bytes, row, strlen(row)))
            fail_msg("docs/API.md has no row for %s %s; scripts/api-doc writes it", routes[i].method, routes[i].path);
    }
    static const char *const begins[] = {"\n| `GET /", "\n| `POST /", "\n| `DELETE /"};
    const char *text = (const char *)map.bytes, *end = text + map.n_bytes;
    for (size_t i = 0; i < sizeof begins / sizeof begins[0]; i++)
        for (const char *at = text; (at = memmem(at, (size_t)(end - at), begins[i], strlen(begins[i]))); at++) n_rows++;
    assert_int_equal(n_rows, n_routes);
    file_map_close(&map);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_route_is_described),
        cmocka_unit_test(test_the_document_lists_them),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
