#include "base/utf8.h"

/* Length from the lead byte, 0 if it cannot lead; the range of the second byte excludes overlong forms and surrogates.
 */
static int lead_bytes(unsigned char lead, unsigned char *out_min2, unsigned char *out_max2) {
    *out_min2 = lead == 0xe0 ? 0xa0 : lead == 0xf0 ? 0x90 : 0x80;
    *out_max2 = lead == 0xed ? 0x9f : lead == 0xf4 ? 0x8f : 0xbf;
    if (lead < 0x80) return 1;
    if (lead < 0xc2) return 0;
    if (lead < 0xe0) return 2;
    if (lead < 0xf0) return 3;
    return lead < 0xf5 ? 4 : 0;
}

static int is_good_follower(unsigned char byte, int idx, unsigned char min2, unsigned char max2) {
    return idx == 1 ? byte >= min2 && byte <= max2 : (byte & 0xc0) == 0x80;
}

int utf8_decode(const char *text, size_t n_bytes, uint32_t *out_code_point) {
    if (n_bytes == 0) return 0;
    const unsigned char *p = (const unsigned char *)text;
    unsigned char min2, max2;
    int n = lead_bytes(p[0], &min2, &max2);
    if (n == 0 || (size_t)n > n_bytes) return 0;
    uint32_t code = n == 1 ? p[0] : p[0] & (0x7fu >> n);
    for (int i = 1; i < n; i++) {
        if (!is_good_follower(p[i], i, min2, max2)) return 0;
        code = code << 6 | (p[i] & 0x3f);
    }
    if (out_code_point) *out_code_point = code;
    return n;
}

int utf8_encode(uint32_t code_point, char out[UTF8_MAX_BYTES]) {
    uint32_t c = code_point;
    if (c > 0x10ffff || (c >= 0xd800 && c < 0xe000)) return 0;
    int n = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    static const unsigned char marks[] = {0, 0, 0xc0, 0xe0, 0xf0};
    for (int i = n - 1; i > 0; i--, c >>= 6) out[i] = (char)(0x80 | (c & 0x3f));
    out[0] = (char)(marks[n] | c);
    return n;
}

size_t utf8_valid_prefix(const char *text, size_t n_bytes) {
    size_t off = 0;
    while (off < n_bytes) {
        int n = utf8_decode(text + off, n_bytes - off, NULL);
        if (n == 0) break;
        off += (size_t)n;
    }
    return off;
}

int utf8_open_tail(const char *text, size_t n_bytes) {
    const unsigned char *p = (const unsigned char *)text;
    for (int back = 1; back <= 3 && (size_t)back <= n_bytes; back++) {
        const unsigned char *lead = p + n_bytes - back;
        if ((*lead & 0xc0) == 0x80) continue;
        unsigned char min2, max2;
        int n = lead_bytes(*lead, &min2, &max2);
        if (n <= back) return 0;
        for (int i = 1; i < back; i++)
            if (!is_good_follower(lead[i], i, min2, max2)) return 0;
        return back;
    }
    return 0;
}
