#include "base/file_map.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum status file_map_open(struct file_map *map, const char *path, struct status_note *note) {
    *map = (struct file_map){0};
    /* Non-blocking, so that opening a named pipe by mistake returns instead of waiting for a writer. */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) return status_fail(note, STATUS_IO, "cannot open: %s", strerror(errno));
    struct stat st;
    enum status status = STATUS_OK;
    if (fstat(fd, &st) != 0) {
        status = status_fail(note, STATUS_IO, "cannot stat: %s", strerror(errno));
    } else if (!S_ISREG(st.st_mode)) {
        status = status_fail(note, STATUS_IO, "not a regular file");
    } else if (st.st_size > 0) {
        void *p = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
        if (p == MAP_FAILED)
            status = status_fail(note, STATUS_IO, "cannot map %lld bytes: %s", (long long)st.st_size, strerror(errno));
        else
            *map = (struct file_map){.bytes = p, .n_bytes = (size_t)st.st_size};
    }
    close(fd);
    return status;
}

void file_map_release(const struct file_map *map, size_t off, size_t n_bytes) {
    REQUIRE(off <= map->n_bytes && n_bytes <= map->n_bytes - off);
    size_t page_bytes = (size_t)sysconf(_SC_PAGESIZE), end = off + n_bytes;
    size_t from = off / page_bytes * page_bytes, to = end == map->n_bytes ? end : end / page_bytes * page_bytes;
    if (from < to) madvise((void *)(uintptr_t)(map->bytes + from), to - from, MADV_DONTNEED); /* advice only */
}

void file_map_close(struct file_map *map) {
    if (map->bytes) munmap((void *)(uintptr_t)map->bytes, map->n_bytes);
    *map = (struct file_map){0};
}
