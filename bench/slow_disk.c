/* A slow disk for any program: every write to a regular file, and every sync, takes its time.
 *
 * Built and preloaded by bench/brokers.py, so that two brokers meet the same disk. All files of the process share one disk of
 * SLOW_DISK_BYTES_PER_S: a write returns when the disk has taken it and all that came before. A sync takes SLOW_DISK_SYNC_US on top.
 * All this only while the file SLOW_DISK_SWITCH exists: a disk that gets fast again lets go of who waits for it, within 10 ms.
 * It is a disk without a cache in front of it: simpler than a real one, and alike for a broker that syncs and one that does not.
 * Not here: reads, which stay fast; memory-mapped files; sockets and pipes, which are no files.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static double free_at_s; /* when the disk has done all it was given */

static double setting(const char *name) {
    const char *text = getenv(name);
    return text ? atof(text) : 0;
}

static double now_s(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec + now.tv_nsec / 1e9;
}

static int is_slow(void) {
    const char *path = getenv("SLOW_DISK_SWITCH");
    return path && access(path, F_OK) == 0;
}

static void occupy(double seconds) {
    int kept = errno;
    if (is_slow()) {
        pthread_mutex_lock(&lock);
        double begin = now_s();
        if (free_at_s < begin) free_at_s = begin;
        free_at_s += seconds;
        double end = free_at_s;
        pthread_mutex_unlock(&lock);
        while (now_s() < end && is_slow()) usleep(end - now_s() < 0.01 ? 500 : 10000);
    } else {
        free_at_s = 0; /* what was promised while it was slow is void; a race here costs one write its wait */
    }
    errno = kept;
}

static void written(int fd, ssize_t size) {
    struct stat found;
    double rate = setting("SLOW_DISK_BYTES_PER_S");
    if (size > 0 && rate > 0 && fstat(fd, &found) == 0 && S_ISREG(found.st_mode)) occupy(size / rate);
}

#define NEXT(name) \
    static __typeof__(name) *next; \
    if (!next) next = (__typeof__(name) *)dlsym(RTLD_NEXT, #name)

#define SLOW_WRITE(name, parameters, ...) \
    ssize_t name parameters { \
        NEXT(name); \
        ssize_t size = next(__VA_ARGS__); \
        written(fd, size); \
        return size; \
    }

#define SLOW_SYNC(name) \
    int name(int fd) { \
        NEXT(name); \
        int result = next(fd); \
        occupy(setting("SLOW_DISK_SYNC_US") / 1e6); \
        return result; \
    }

SLOW_WRITE(write, (int fd, const void *bytes, size_t size_asked), fd, bytes, size_asked)
SLOW_WRITE(pwrite, (int fd, const void *bytes, size_t asked, off_t at), fd, bytes, asked, at)
SLOW_WRITE(pwrite64, (int fd, const void *bytes, size_t asked, off64_t at), fd, bytes, asked, at)
SLOW_WRITE(writev, (int fd, const struct iovec *parts, int count), fd, parts, count)
SLOW_WRITE(pwritev, (int fd, const struct iovec *parts, int count, off_t at), fd, parts, count, at)
SLOW_WRITE(pwritev64, (int fd, const struct iovec *parts, int count, off64_t at), fd, parts, count, at)
SLOW_WRITE(pwritev2, (int fd, const struct iovec *parts, int count, off_t at, int flags), fd, parts, count, at, flags)
SLOW_WRITE(pwritev64v2, (int fd, const struct iovec *parts, int count, off64_t at, int flags), fd, parts, count, at, flags)
SLOW_SYNC(fsync)
SLOW_SYNC(fdatasync)
