#include "kernelcheck/guard.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/status.h"

#define MARGIN_BYTES 512 /* a wide store far off by a tile still lands here */

void guard_init(struct guard *guard, size_t n_bytes) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE), usable = (n_bytes / page + 2) * page;
    uint8_t *map = mmap(NULL, usable + 2 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    REQUIRE(map != MAP_FAILED);
    REQUIRE(mprotect(map + page, usable, PROT_READ | PROT_WRITE) == 0);
    *guard = (struct guard){map + page, map + page + usable};
}

void *guard_place(const struct guard *guard, size_t n_bytes, enum guard_place place) {
    REQUIRE(n_bytes + 68 <= (size_t)(guard->end - guard->begin));
    switch (place) {
    case GUARD_AT_END: return guard->end - n_bytes;
    case GUARD_AT_BEGIN: return guard->begin;
    default: return guard->begin + 68;
    }
}

void *guard_copy(const struct guard *guard, const void *src, size_t n_bytes, enum guard_place place) {
    return memcpy(guard_place(guard, n_bytes, place), src, n_bytes);
}

static uint8_t canary_at(const uint8_t *p) {
    return (uintptr_t)p % 2 ? 0xff : 0xa5;
}

void guard_paint(void *begin, size_t n_bytes) {
    uint8_t *p = begin;
    for (size_t i = 0; i < n_bytes; i++) p[i] = canary_at(p + i);
}

bool guard_is_painted(const void *begin, size_t n_bytes) {
    const uint8_t *p = begin;
    for (size_t i = 0; i < n_bytes; i++)
        if (p[i] != canary_at(p + i)) return false;
    return true;
}

static const uint8_t *margin_begin(const struct guard *guard, const uint8_t *output) {
    return output - guard->begin > MARGIN_BYTES ? output - MARGIN_BYTES : guard->begin;
}

static const uint8_t *margin_end(const struct guard *guard, const uint8_t *output_end) {
    return guard->end - output_end > MARGIN_BYTES ? output_end + MARGIN_BYTES : guard->end;
}

void *guard_place_output(const struct guard *guard, size_t n_bytes, enum guard_place place) {
    uint8_t *output = guard_place(guard, n_bytes, place);
    uint8_t *begin = (uint8_t *)margin_begin(guard, output);
    guard_paint(begin, (size_t)(margin_end(guard, output + n_bytes) - begin));
    return output;
}

bool guard_is_intact(const struct guard *guard, const void *output, size_t n_bytes) {
    const uint8_t *begin = output, *end = begin + n_bytes, *from = margin_begin(guard, begin);
    return guard_is_painted(from, (size_t)(begin - from)) &&
           guard_is_painted(end, (size_t)(margin_end(guard, end) - end));
}
