#include "api/api_auth.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/test.h"

#define SECOND_NS INT64_C(1000000000)

static struct api_auth auth;
static struct status_note note;

static int set_up(void **state) {
    (void)state;
    return api_auth_init(&auth);
}

static int tear_down(void **state) {
    (void)state;
    api_auth_deinit(&auth);
    return 0;
}

static struct api_key key_of(const char *name, double tokens_per_minute) {
    struct api_key key = {.n_digests = 1, .tokens_per_minute = tokens_per_minute};
    snprintf(key.terms.name, sizeof key.terms.name, "%s", name);
    hash_sha256(name, strlen(name), NULL, 0, key.digests[0]);
    return key;
}

static int idx_of(const char *name) {
    for (int i = 0; i < auth.n_slots; i++)
        if (strcmp(api_auth_terms(&auth, i).name, name) == 0) return i;
    return -1;
}

static void without_keys_everybody_may_all(void **state) {
    struct api_fault fault;
    (void)state;
    assert_false(auth.is_set);
    assert_true(api_auth_is_admin(&auth, -1));
    assert_true(api_auth_check_rate(&auth, -1, 0, &fault));
    assert_false(api_auth_terms(&auth, -1).has_salt);
    api_auth_use(&auth, -1, 1000, 1000, 0);
}

static void own_keys_may_all_and_do_not_meet(void **state) {
    (void)state;
    assert_int_equal(api_auth_add(&auth, ""), STATUS_INVALID);
    assert_int_equal(api_auth_add(&auth, "one"), STATUS_OK);
    assert_int_equal(api_auth_add(&auth, "two"), STATUS_OK);
    assert_true(auth.is_set && api_auth_is_admin(&auth, 0) && !api_auth_is_admin(&auth, -1));
    struct api_key_terms one = api_auth_terms(&auth, 0), two = api_auth_terms(&auth, 1);
    assert_memory_not_equal(one.salt, two.salt, sizeof one.salt);
    assert_true(one.tenant_id != two.tenant_id);
    assert_string_equal(two.name, "api-key-2");
    for (int i = 2; i < API_AUTH_MAX_KEYS; i++) assert_int_equal(api_auth_add(&auth, "x"), STATUS_OK);
    assert_int_equal(api_auth_add(&auth, "x"), STATUS_LIMIT);
}

/* An index that was given to a request must never become another's. */
static void an_index_is_a_name_for_ever(void **state) {
    struct api_key first[] = {key_of("a", 0), key_of("b", 0)}, second[] = {key_of("c", 0), key_of("b", 0)};
    struct api_key third[] = {key_of("a", 0)};
    (void)state;
    assert_int_equal(api_auth_add(&auth, "own"), STATUS_OK);
    assert_int_equal(api_auth_set(&auth, first, 2, 0, &note), STATUS_OK);
    int a = idx_of("a"), b = idx_of("b");
    assert_int_equal(auth.n_keys, 3);
    assert_int_equal(api_auth_set(&auth, second, 2, 0, &note), STATUS_OK);
    assert_int_equal(idx_of("a"), a);
    assert_int_equal(idx_of("b"), b);
    assert_int_equal(auth.n_keys, 3);
    assert_int_equal(api_auth_set(&auth, third, 1, 0, &note), STATUS_OK);
    assert_int_equal(idx_of("a"), a);
    assert_int_equal(auth.n_keys, 2);
    assert_false(api_auth_is_admin(&auth, a));
}

static void what_was_used_outlives_a_reload(void **state) {
    struct api_key keys[] = {key_of("a", 60), key_of("b", 60)};
    struct api_fault fault;
    (void)state;
    assert_int_equal(api_auth_set(&auth, keys, 2, 0, &note), STATUS_OK);
    int a = idx_of("a"), b = idx_of("b");
    assert_true(api_auth_check_rate(&auth, a, 0, &fault));
    api_auth_use(&auth, a, 150, 0, 0);
    for (int i = 0; i < 2; i++) {
        assert_false(api_auth_check_rate(&auth, a, 0, &fault));
        assert_int_equal(fault.http_code, 429);
        assert_in_range(fault.retry_after_s, 90, 91);
        assert_non_null(strstr(fault.message, "'a'"));
        assert_true(api_auth_check_rate(&auth, b, 0, &fault));
        assert_int_equal(api_auth_set(&auth, keys, 2, 0, &note), STATUS_OK);
    }
    assert_true(api_auth_check_rate(&auth, a, 91 * SECOND_NS, &fault));
}

static void the_longer_wait_is_told(void **state) {
    struct api_key key = key_of("a", 60);
    struct api_fault fault;
    (void)state;
    key.prefill_ms_per_minute = 600;
    assert_int_equal(api_auth_set(&auth, &key, 1, 0, &note), STATUS_OK);
    api_auth_use(&auth, 0, 70, 1200 * SECOND_NS / 1000, 0); /* 10 s of tokens, 60 s of prefill */
    assert_false(api_auth_check_rate(&auth, 0, 0, &fault));
    assert_in_range(fault.retry_after_s, 60, 61);
    assert_non_null(strstr(fault.message, "ms of prefill"));
    api_auth_use(&auth, 0, 1000000000, 0, 0);
    assert_false(api_auth_check_rate(&auth, 0, 0, &fault));
    assert_int_equal(fault.retry_after_s, 86400);
    assert_non_null(strstr(fault.message, "tokens"));
}

static void names_past_and_present_are_bounded(void **state) {
    static struct api_key keys[API_AUTH_MAX_KEYS];
    struct api_key other = key_of("other", 0);
    (void)state;
    for (int i = 0; i < API_AUTH_MAX_KEYS; i++) {
        char name[16];
        snprintf(name, sizeof name, "k%d", i);
        keys[i] = key_of(name, 0);
    }
    assert_int_equal(api_auth_set(&auth, keys, API_AUTH_MAX_KEYS, 0, &note), STATUS_OK);
    assert_int_equal(api_auth_set(&auth, &other, 1, 0, &note), STATUS_LIMIT);
    assert_int_equal(auth.n_keys, API_AUTH_MAX_KEYS); /* nothing has changed */
    assert_int_equal(api_auth_set(&auth, keys, 3, 0, &note), STATUS_OK);
    assert_int_equal(auth.n_keys, 3);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(without_keys_everybody_may_all, set_up, tear_down),
        cmocka_unit_test_setup_teardown(own_keys_may_all_and_do_not_meet, set_up, tear_down),
        cmocka_unit_test_setup_teardown(an_index_is_a_name_for_ever, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_was_used_outlives_a_reload, set_up, tear_down),
        cmocka_unit_test_setup_teardown(the_longer_wait_is_told, set_up, tear_down),
        cmocka_unit_test_setup_teardown(names_past_and_present_are_bounded, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
