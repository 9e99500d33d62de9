#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#include "base/hash.h"
#include "cmd/cmd.h"
#include "cmd/keys_file.h"

#define N_RANDOM_BYTES 32 /* nobody guesses 256 bits, so a plain hash of them is safe to keep */

static void print_hex(const uint8_t *bytes, int n_bytes) {
    for (int i = 0; i < n_bytes; i++) printf("%02x", bytes[i]);
}

int cmd_key(const struct options *options, int n_words, const char **words) {
    uint8_t random[N_RANDOM_BYTES], digest[HASH_SHA256_BYTES];
    char key[3 + 2 * N_RANDOM_BYTES + 1] = "kv-";
    (void)options;
    if (n_words != 1 || !keys_file_is_name(words[0]))
        return cmd_usage("key", "one name is expected, of 1 to 63 letters, digits, '.', '_' and '-'");
    if (getrandom(random, sizeof random, 0) != (ssize_t)sizeof random) {
        struct status_note note;
        return cmd_fail(NULL, status_fail(&note, STATUS_IO, "the system gives no random numbers"), &note);
    }
    for (int i = 0; i < N_RANDOM_BYTES; i++) snprintf(key + 3 + 2 * i, 3, "%02x", random[i]);
    hash_sha256(key, strlen(key), NULL, 0, digest);
    /* What goes into the file is on standard output alone, so that it can be appended. */
    fprintf(stderr, "the key, for its owner; it is kept nowhere:\n%s\n", key);
    printf("[[key]]\nname = \"%s\"\nsha256 = \"", words[0]);
    print_hex(digest, HASH_SHA256_BYTES);
    printf("\"\n");
    return 0;
}
