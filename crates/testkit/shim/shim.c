/*
 * The preload shim: records what a program does to one directory, and makes calls fail on request.
 *
 * Preloaded into a server, it stands between the program and libc. Every change below KILIM_SHIM_DIR
 * (data written, lengths set, names made and removed, syncs begun and ended) is appended to
 * KILIM_SHIM_LOG. From that log `crash.rs` rebuilds the directory as power loss at any sync would leave
 * it.
 *
 *   KILIM_SHIM_DIR      the watched directory; it exists when the program starts
 *   KILIM_SHIM_LOG      the log; without it nothing is recorded, faults still work
 *   KILIM_SHIM_FAIL     faults, separated by commas: CLASS:N:ERROR fails the Nth call of the class,
 *                       CLASS:N+:ERROR that one and all later ones. Classes: write (data and lengths),
 *                       fsync (fsync and fdatasync), create (names made or changed).
 *                       free:BYTES makes statvfs report that much free space.
 *   KILIM_SHIM_CONTROL  a file that holds faults in the same form and is read at each call, so that a
 *                       test can switch a fault on and off while the program runs.
 *
 * Invariants: a change and its record happen under one lock, so the order of the log is the order of the
 * changes. A sync is two records, begun and ended, and runs outside the lock: only what was recorded
 * before its beginning is durable at its end. A record is one write(2) to the log, unbuffered, so a log
 * length observed from outside bounds what had happened by then.
 *
 * Calls that go straight to the kernel are not seen (the `rustix` crate renames that way), therefore the
 * record of a directory's sync carries the directory's real listing. Shared writable mappings cannot be
 * followed; they are recorded so that the rebuild can refuse.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

/* Kinds of record; crash/log.rs knows the same numbers. */
enum {
    ROOT = 1,
    CREATE = 2,
    MKDIR = 3,
    WRITE = 4,
    TRUNCATE = 5,
    SYNC_BEGIN = 6,
    SYNC_END = 7,
    RENAME = 8,
    UNLINK = 9,
    LINK = 10,
    MAPPED = 11,
    FAULT = 12,
};

/* The fixed part of a record; two paths relative to the watched directory and the data follow. */
struct record {
    uint8_t kind;
    uint8_t directory;  /* the subject is a directory */
    uint16_t path_bytes;
    uint16_t target_bytes;
    uint16_t error;     /* errno of the call, 0 when it succeeded */
    uint32_t data_bytes;
    uint32_t sync;      /* pairs SYNC_BEGIN with SYNC_END */
    uint64_t inode;
    uint64_t offset;    /* of a write; the length of a truncation */
} __attribute__((packed));

#define DESCRIPTORS 65536
#define DURABLE_ON_WRITE (O_SYNC | O_DSYNC)

static struct descriptor {
    uint64_t inode; /* 0: not watched */
    int flags;
    int directory;
} descriptors[DESCRIPTORS];

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char watched[PATH_MAX];
static size_t watched_bytes;
static int log_descriptor = -1;
static const char *faults_from_start;
static const char *control;
static uint32_t syncs;
static unsigned long calls_write, calls_fsync, calls_create;

#define REAL(name) ((__typeof__(&name))real(#name))

static void *real(const char *name) {
    void *symbol = dlsym(RTLD_NEXT, name);
    if (!symbol) {
        fprintf(stderr, "shim: no %s below\n", name);
        abort();
    }
    return symbol;
}

/* Each wrapper looks its real function up once. */
#define BELOW(name)                                   \
    static __typeof__(&name) below;                   \
    if (!below) below = REAL(name)

static ssize_t raw_write(int fd, const void *bytes, size_t count) {
    return syscall(SYS_write, fd, bytes, count);
}

static void record(struct record head, const char *path, const char *target, const void *data) {
    if (log_descriptor < 0) return;
    head.path_bytes = path ? strlen(path) : 0;
    head.target_bytes = target ? strlen(target) : 0;
    struct iovec parts[4] = {
        {&head, sizeof head},
        {(void *)path, head.path_bytes},
        {(void *)target, head.target_bytes},
        {(void *)data, head.data_bytes},
    };
    size_t total = sizeof head + head.path_bytes + head.target_bytes + head.data_bytes;
    if (syscall(SYS_writev, log_descriptor, parts, 4) != (ssize_t)total) {
        static const char text[] = "shim: the log cannot be written\n";
        raw_write(2, text, sizeof text - 1);
        abort();
    }
}

__attribute__((constructor)) static void start(void) {
    const char *directory = getenv("KILIM_SHIM_DIR");
    if (!directory || !realpath(directory, watched)) return;
    struct stat root;
    if (stat(watched, &root) != 0) return;
    faults_from_start = getenv("KILIM_SHIM_FAIL");
    control = getenv("KILIM_SHIM_CONTROL");
    const char *log = getenv("KILIM_SHIM_LOG");
    if (log) log_descriptor = syscall(SYS_openat, AT_FDCWD, log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    record((struct record){.kind = ROOT, .directory = 1, .inode = root.st_ino}, NULL, NULL, NULL);
    watched_bytes = strlen(watched);
}

/* The path below the watched directory, or NULL. Names inside are resolved by text, which suffices for
 * programs that make no symbolic links there. */
static const char *below_watched(int at, const char *path, char *space) {
    if (!watched_bytes || !path) return NULL;
    /* A file may be opened a second time by the descriptor that has it, with other flags. */
    static const char own[] = "/proc/self/fd/";
    char opened_before[PATH_MAX];
    if (strncmp(path, own, sizeof own - 1) == 0) {
        ssize_t length = readlink(path, opened_before, sizeof opened_before - 1);
        if (length < 0) return NULL;
        opened_before[length] = 0;
        path = opened_before;
    }
    char joined[PATH_MAX * 2];
    if (path[0] == '/') {
        snprintf(joined, sizeof joined, "%s", path);
    } else {
        char base[PATH_MAX];
        char name[64];
        if (at == AT_FDCWD) snprintf(name, sizeof name, "/proc/self/cwd");
        else snprintf(name, sizeof name, "/proc/self/fd/%d", at);
        ssize_t length = readlink(name, base, sizeof base - 1);
        if (length < 0) return NULL;
        base[length] = 0;
        snprintf(joined, sizeof joined, "%s/%s", base, path);
    }
    /* The directory of the path is resolved for real: the program may have been given another spelling. */
    char *slash = strrchr(joined, '/');
    while (slash > joined && slash[1] == 0) {
        *slash = 0;
        slash = strrchr(joined, '/');
    }
    char resolved[PATH_MAX];
    const char *last = slash + 1;
    if (strcmp(last, ".") == 0 || strcmp(last, "..") == 0) {
        if (!realpath(joined, resolved)) return NULL;
    } else {
        char directory[PATH_MAX];
        *slash = 0;
        if (!realpath(joined[0] ? joined : "/", directory)) return NULL;
        if (snprintf(resolved, sizeof resolved, "%s/%s", directory[1] ? directory : "", last) >= (int)sizeof resolved)
            return NULL;
    }
    if (strncmp(resolved, watched, watched_bytes) != 0) return NULL;
    if (resolved[watched_bytes] != 0 && resolved[watched_bytes] != '/') return NULL;
    const char *rest = resolved + watched_bytes;
    while (*rest == '/') rest++;
    strcpy(space, rest);
    return space;
}

static struct descriptor *descriptor(int fd) {
    if (fd < 0 || fd >= DESCRIPTORS || !descriptors[fd].inode) return NULL;
    /* libc closes some descriptors without passing here (closedir), and the number is used again. */
    struct stat status;
    int error = errno;
    int same = fstat(fd, &status) == 0 && status.st_ino == descriptors[fd].inode
        && (S_ISREG(status.st_mode) || S_ISDIR(status.st_mode));
    errno = error;
    if (!same) descriptors[fd].inode = 0;
    return same ? &descriptors[fd] : NULL;
}

/* ---- faults ---- */

static const struct {
    const char *name;
    int number;
} errors[] = {{"EIO", EIO}, {"ENOSPC", ENOSPC}, {"EDQUOT", EDQUOT}, {"EROFS", EROFS}, {"EINTR", EINTR}};

/* Finds CLASS:N[+]:ERROR in a list; `call` is the number of this call, counted from one. */
static int fault_in(const char *list, const char *class, unsigned long call) {
    size_t length = strlen(class);
    for (const char *at = list; at && *at; at = strpbrk(at, ",\n"), at = at ? at + 1 : NULL) {
        if (strncmp(at, class, length) != 0 || at[length] != ':') continue;
        char *end;
        unsigned long nth = strtoul(at + length + 1, &end, 10);
        int onwards = *end == '+';
        if (onwards) end++;
        if (*end != ':' || (onwards ? call < nth : call != nth)) continue;
        for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
            if (strncmp(end + 1, errors[i].name, strlen(errors[i].name)) == 0) return errors[i].number;
    }
    return 0;
}

static const char *read_control(char *space, size_t size) {
    if (!control) return NULL;
    int fd = syscall(SYS_openat, AT_FDCWD, control, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return NULL;
    ssize_t length = syscall(SYS_read, fd, space, size - 1);
    syscall(SYS_close, fd);
    if (length < 0) return NULL;
    space[length] = 0;
    return space;
}

/* Counts the call; under the lock. */
static int fault(const char *class, unsigned long *calls) {
    char space[512];
    unsigned long call = ++*calls;
    int error = fault_in(faults_from_start, class, call);
    if (!error) error = fault_in(read_control(space, sizeof space), class, call);
    if (error)
        record((struct record){.kind = FAULT, .error = error}, class, NULL, NULL);
    return error;
}

static int free_bytes(unsigned long long *bytes) {
    char space[512];
    const char *lists[] = {faults_from_start, read_control(space, sizeof space)};
    for (int i = 0; i < 2; i++) {
        const char *at = lists[i] ? strstr(lists[i], "free:") : NULL;
        if (at) {
            *bytes = strtoull(at + 5, NULL, 10);
            return 1;
        }
    }
    return 0;
}

static int refuse(int error) {
    pthread_mutex_unlock(&lock);
    errno = error;
    return -1;
}

/* ---- opening and closing ---- */

static int opened(int fd, const char *path, int existed, int flags) {
    if (fd < 0) return fd;
    if (fd >= DESCRIPTORS) {
        fprintf(stderr, "shim: descriptor %d is beyond the table\n", fd);
        abort();
    }
    struct stat status;
    if (fstat(fd, &status) != 0) return fd;
    int directory = S_ISDIR(status.st_mode);
    if (!directory && !S_ISREG(status.st_mode)) return fd;
    descriptors[fd] = (struct descriptor){status.st_ino, flags, directory};
    struct record head = {.directory = directory, .inode = status.st_ino};
    if (!existed && !directory) {
        head.kind = CREATE;
        record(head, path, NULL, NULL);
    } else if ((flags & O_TRUNC) && !directory) {
        head.kind = TRUNCATE;
        record(head, NULL, NULL, NULL);
    }
    return fd;
}

typedef int (*opener)(int, const char *, int, mode_t);

static int open_watched(opener below, int at, const char *path, int flags, mode_t mode) {
    char space[PATH_MAX];
    const char *relative = below_watched(at, path, space);
    if (!relative) {
        int fd = below(at, path, flags, mode);
        if (fd >= 0 && fd < DESCRIPTORS) descriptors[fd].inode = 0;
        return fd;
    }
    pthread_mutex_lock(&lock);
    int existed = faccessat(at, path, F_OK, 0) == 0;
    if ((flags & O_CREAT) && !existed) {
        int error = fault("create", &calls_create);
        if (error) return refuse(error);
    }
    int fd = below(at, path, flags, mode);
    int error = errno;
    opened(fd, relative, existed, flags);
    pthread_mutex_unlock(&lock);
    errno = error;
    return fd;
}

#define MODE(flags, mode)                                                         \
    mode_t mode = 0;                                                              \
    if ((flags) & (O_CREAT | __O_TMPFILE)) {                                      \
        va_list rest;                                                             \
        va_start(rest, flags);                                                    \
        mode = va_arg(rest, mode_t);                                              \
        va_end(rest);                                                             \
    }

static int below_openat(int at, const char *path, int flags, mode_t mode) {
    BELOW(openat);
    return below(at, path, flags, mode);
}

int open(const char *path, int flags, ...) {
    MODE(flags, mode);
    return open_watched(below_openat, AT_FDCWD, path, flags, mode);
}
int open64(const char *path, int flags, ...) {
    MODE(flags, mode);
    return open_watched(below_openat, AT_FDCWD, path, flags | O_LARGEFILE, mode);
}
int openat(int at, const char *path, int flags, ...) {
    MODE(flags, mode);
    return open_watched(below_openat, at, path, flags, mode);
}
int openat64(int at, const char *path, int flags, ...) {
    MODE(flags, mode);
    return open_watched(below_openat, at, path, flags | O_LARGEFILE, mode);
}
int creat(const char *path, mode_t mode) {
    return open_watched(below_openat, AT_FDCWD, path, O_CREAT | O_WRONLY | O_TRUNC, mode);
}
int creat64(const char *path, mode_t mode) {
    return open_watched(below_openat, AT_FDCWD, path, O_CREAT | O_WRONLY | O_TRUNC | O_LARGEFILE, mode);
}

/* For C++ streams, which open by stdio and then write by write(2). What stdio itself buffers is not seen. */
static FILE *fopen_watched(FILE *(*below)(const char *, const char *), const char *path, const char *mode) {
    char space[PATH_MAX];
    const char *relative = below_watched(AT_FDCWD, path, space);
    if (!relative) return below(path, mode);
    pthread_mutex_lock(&lock);
    int existed = access(path, F_OK) == 0;
    FILE *file = below(path, mode);
    int error = errno;
    if (file) opened(fileno(file), relative, existed, mode[0] == 'w' ? O_TRUNC : 0);
    pthread_mutex_unlock(&lock);
    errno = error;
    return file;
}

FILE *fopen(const char *path, const char *mode) {
    BELOW(fopen);
    return fopen_watched(below, path, mode);
}
FILE *fopen64(const char *path, const char *mode) {
    BELOW(fopen64);
    return fopen_watched(below, path, mode);
}

int close(int fd) {
    BELOW(close);
    if (fd >= 0 && fd < DESCRIPTORS) descriptors[fd].inode = 0;
    return below(fd);
}

static int copied(int from, int to) {
    int error = errno;
    if (to >= 0 && to < DESCRIPTORS)
        descriptors[to] = from >= 0 && from < DESCRIPTORS ? descriptors[from] : (struct descriptor){0};
    errno = error;
    return to;
}

int dup(int fd) {
    BELOW(dup);
    return copied(fd, below(fd));
}
int dup2(int fd, int to) {
    BELOW(dup2);
    return copied(fd, below(fd, to));
}
int dup3(int fd, int to, int flags) {
    BELOW(dup3);
    return copied(fd, below(fd, to, flags));
}

static int fcntl_watched(int (*below)(int, int, ...), int fd, int command, void *argument) {
    int result = below(fd, command, argument);
    return command == F_DUPFD || command == F_DUPFD_CLOEXEC ? copied(fd, result) : result;
}

#define ARGUMENT(command, argument)                                               \
    va_list rest;                                                                 \
    va_start(rest, command);                                                      \
    void *argument = va_arg(rest, void *);                                        \
    va_end(rest)

int fcntl(int fd, int command, ...) {
    BELOW(fcntl);
    ARGUMENT(command, argument);
    return fcntl_watched(below, fd, command, argument);
}
int fcntl64(int fd, int command, ...) {
    BELOW(fcntl64);
    ARGUMENT(command, argument);
    return fcntl_watched(below, fd, command, argument);
}

/* ---- data ---- */

/* Where the write that just ended began, for calls that use the descriptor's own position. */
static uint64_t began(int fd, ssize_t written) {
    return (uint64_t)lseek64(fd, 0, SEEK_CUR) - (uint64_t)written;
}

static void wrote(int fd, uint64_t offset, const struct iovec *parts, int count, ssize_t written) {
    struct descriptor *file = descriptor(fd);
    if (written <= 0) return;
    size_t left = written;
    int error = errno;
    for (int i = 0; i < count && left > 0; i++) {
        size_t bytes = parts[i].iov_len < left ? parts[i].iov_len : left;
        if (bytes > 0)
            record((struct record){.kind = WRITE, .inode = file->inode, .offset = offset, .data_bytes = bytes}, NULL, NULL,
                   parts[i].iov_base);
        offset += bytes;
        left -= bytes;
    }
    if (file->flags & DURABLE_ON_WRITE) {
        uint32_t sync = ++syncs;
        record((struct record){.kind = SYNC_BEGIN, .inode = file->inode, .sync = sync}, NULL, NULL, NULL);
        record((struct record){.kind = SYNC_END, .inode = file->inode, .sync = sync}, NULL, NULL, NULL);
    }
    errno = error;
}

/* One body for all six: `positioned` says whether the caller gave the offset. */
#define WRITE_BODY(call, at, positioned, parts, count)                            \
    do {                                                                          \
        if (!descriptor(fd)) return (call);                                       \
        pthread_mutex_lock(&lock);                                                \
        int error = fault("write", &calls_write);                                 \
        if (error) return refuse(error);                                          \
        ssize_t written = (call);                                                 \
        int after = errno;                                                        \
        if (written > 0)                                                          \
            wrote(fd, (positioned) ? (uint64_t)(at) : began(fd, written), parts, count, written); \
        pthread_mutex_unlock(&lock);                                              \
        errno = after;                                                            \
        return written;                                                           \
    } while (0)

ssize_t write(int fd, const void *bytes, size_t count) {
    BELOW(write);
    struct iovec part = {(void *)bytes, count};
    WRITE_BODY(below(fd, bytes, count), 0, 0, &part, 1);
}
ssize_t pwrite(int fd, const void *bytes, size_t count, off_t at) {
    BELOW(pwrite);
    struct iovec part = {(void *)bytes, count};
    WRITE_BODY(below(fd, bytes, count, at), at, 1, &part, 1);
}
ssize_t pwrite64(int fd, const void *bytes, size_t count, off64_t at) {
    BELOW(pwrite64);
    struct iovec part = {(void *)bytes, count};
    WRITE_BODY(below(fd, bytes, count, at), at, 1, &part, 1);
}
ssize_t writev(int fd, const struct iovec *parts, int count) {
    BELOW(writev);
    WRITE_BODY(below(fd, parts, count), 0, 0, parts, count);
}
ssize_t pwritev(int fd, const struct iovec *parts, int count, off_t at) {
    BELOW(pwritev);
    WRITE_BODY(below(fd, parts, count, at), at, 1, parts, count);
}
ssize_t pwritev64(int fd, const struct iovec *parts, int count, off64_t at) {
    BELOW(pwritev64);
    WRITE_BODY(below(fd, parts, count, at), at, 1, parts, count);
}
ssize_t pwritev2(int fd, const struct iovec *parts, int count, off_t at, int flags) {
    BELOW(pwritev2);
    WRITE_BODY(below(fd, parts, count, at, flags), at, at != -1, parts, count);
}
ssize_t pwritev64v2(int fd, const struct iovec *parts, int count, off64_t at, int flags) {
    BELOW(pwritev64v2);
    WRITE_BODY(below(fd, parts, count, at, flags), at, at != -1, parts, count);
}

/* Copies inside the kernel carry no bytes past us; callers fall back to read and write. */
ssize_t copy_file_range(int from, off64_t *from_at, int to, off64_t *to_at, size_t count, unsigned flags) {
    BELOW(copy_file_range);
    if (descriptor(to)) {
        errno = ENOSYS;
        return -1;
    }
    return below(from, from_at, to, to_at, count, flags);
}
ssize_t sendfile(int to, int from, off_t *at, size_t count) {
    ssize_t (*below)(int, int, off_t *, size_t) = real("sendfile");
    if (descriptor(to)) {
        errno = ENOSYS;
        return -1;
    }
    return below(to, from, at, count);
}
ssize_t sendfile64(int to, int from, off64_t *at, size_t count) {
    ssize_t (*below)(int, int, off64_t *, size_t) = real("sendfile64");
    if (descriptor(to)) {
        errno = ENOSYS;
        return -1;
    }
    return below(to, from, at, count);
}

/* Lengths: what matters afterwards is the length that the file then has. */
#define LENGTH_BODY(call, failure)                                                \
    do {                                                                          \
        struct descriptor *file = descriptor(fd);                                 \
        if (!file) return (call);                                                 \
        pthread_mutex_lock(&lock);                                                \
        int error = fault("write", &calls_write);                                 \
        if (error) {                                                              \
            refuse(error);                                                        \
            return failure;                                                       \
        }                                                                         \
        int result = (call);                                                      \
        int after = errno;                                                        \
        struct stat status;                                                       \
        if (result == 0 && fstat(fd, &status) == 0)                               \
            record((struct record){.kind = TRUNCATE, .inode = file->inode, .offset = status.st_size}, NULL, NULL, NULL); \
        pthread_mutex_unlock(&lock);                                              \
        errno = after;                                                            \
        return result;                                                            \
    } while (0)

int ftruncate(int fd, off_t length) {
    BELOW(ftruncate);
    LENGTH_BODY(below(fd, length), -1);
}
int ftruncate64(int fd, off64_t length) {
    BELOW(ftruncate64);
    LENGTH_BODY(below(fd, length), -1);
}
int fallocate(int fd, int mode, off_t at, off_t length) {
    BELOW(fallocate);
    LENGTH_BODY(below(fd, mode, at, length), -1);
}
int fallocate64(int fd, int mode, off64_t at, off64_t length) {
    BELOW(fallocate64);
    LENGTH_BODY(below(fd, mode, at, length), -1);
}
int posix_fallocate(int fd, off_t at, off_t length) {
    BELOW(posix_fallocate);
    LENGTH_BODY(below(fd, at, length), error);
}
int posix_fallocate64(int fd, off64_t at, off64_t length) {
    BELOW(posix_fallocate64);
    LENGTH_BODY(below(fd, at, length), error);
}

/* ---- syncs ---- */

/* Name, zero byte, inode number: the directory as it is. */
static size_t listing(int fd, char **data) {
    size_t used = 0, room = 4096;
    *data = malloc(room);
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    DIR *directory = opendir(path);
    if (!directory) return 0;
    for (struct dirent *entry; (entry = readdir(directory));) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) continue;
        size_t name = strlen(entry->d_name) + 1;
        if (used + name + 9 > room) *data = realloc(*data, room = room * 2 + name);
        memcpy(*data + used, entry->d_name, name);
        uint64_t inode = entry->d_ino;
        memcpy(*data + used + name, &inode, 8);
        (*data)[used + name + 8] = entry->d_type == DT_DIR;
        used += name + 9;
    }
    closedir(directory);
    return used;
}

static int sync_watched(int (*below)(int), int fd) {
    struct descriptor *file = descriptor(fd);
    if (!file) return below(fd);
    struct record head = {.inode = file->inode, .directory = file->directory};
    pthread_mutex_lock(&lock);
    int error = fault("fsync", &calls_fsync);
    if (error) return refuse(error);
    head.sync = ++syncs;
    head.kind = SYNC_BEGIN;
    char *names = NULL;
    if (file->directory) head.data_bytes = listing(fd, &names);
    record(head, NULL, NULL, names);
    free(names);
    pthread_mutex_unlock(&lock);

    int result = below(fd);
    error = errno;

    pthread_mutex_lock(&lock);
    head.kind = SYNC_END;
    head.data_bytes = 0;
    head.error = result == 0 ? 0 : error;
    record(head, NULL, NULL, NULL);
    pthread_mutex_unlock(&lock);
    errno = error;
    return result;
}

int fsync(int fd) {
    BELOW(fsync);
    return sync_watched(below, fd);
}
int fdatasync(int fd) {
    BELOW(fdatasync);
    return sync_watched(below, fd);
}
/* Starts write-back and promises nothing: no record. */
int sync_file_range(int fd, off64_t at, off64_t length, unsigned flags) {
    BELOW(sync_file_range);
    return below(fd, at, length, flags);
}

/* ---- names ---- */

static uint64_t inode_at(int at, const char *path, int *directory) {
    struct stat status;
    if (fstatat(at, path, &status, AT_SYMLINK_NOFOLLOW) != 0) return 0;
    *directory = S_ISDIR(status.st_mode);
    return status.st_ino;
}

static int named(int kind, int result, uint64_t inode, int directory, const char *path, const char *target) {
    int error = errno;
    if (result == 0) record((struct record){.kind = kind, .inode = inode, .directory = directory}, path, target, NULL);
    pthread_mutex_unlock(&lock);
    errno = error;
    return result;
}

static int rename_watched(int from_at, const char *from, int to_at, const char *to, unsigned flags) {
    static int (*below)(int, const char *, int, const char *, unsigned);
    if (!below) below = real("renameat2");
    char from_space[PATH_MAX], to_space[PATH_MAX];
    const char *source = below_watched(from_at, from, from_space), *target = below_watched(to_at, to, to_space);
    if (!source && !target) return below(from_at, from, to_at, to, flags);
    pthread_mutex_lock(&lock);
    int error = fault("create", &calls_create);
    if (error) return refuse(error);
    int directory = 0;
    uint64_t inode = inode_at(from_at, from, &directory);
    int result = below(from_at, from, to_at, to, flags);
    return named(RENAME, result, inode, directory, source, target);
}

int rename(const char *from, const char *to) { return rename_watched(AT_FDCWD, from, AT_FDCWD, to, 0); }
int renameat(int from_at, const char *from, int to_at, const char *to) {
    return rename_watched(from_at, from, to_at, to, 0);
}
int renameat2(int from_at, const char *from, int to_at, const char *to, unsigned flags) {
    return rename_watched(from_at, from, to_at, to, flags);
}

static int unlink_watched(int at, const char *path, int flags) {
    BELOW(unlinkat);
    char space[PATH_MAX];
    const char *relative = below_watched(at, path, space);
    if (!relative) return below(at, path, flags);
    pthread_mutex_lock(&lock);
    int directory = 0;
    uint64_t inode = inode_at(at, path, &directory);
    int result = below(at, path, flags);
    return named(UNLINK, result, inode, directory, relative, NULL);
}

int unlink(const char *path) { return unlink_watched(AT_FDCWD, path, 0); }
int unlinkat(int at, const char *path, int flags) { return unlink_watched(at, path, flags); }
int rmdir(const char *path) { return unlink_watched(AT_FDCWD, path, AT_REMOVEDIR); }
int remove(const char *path) {
    struct stat status;
    if (lstat(path, &status) != 0) return -1;
    return unlink_watched(AT_FDCWD, path, S_ISDIR(status.st_mode) ? AT_REMOVEDIR : 0);
}

static int mkdir_watched(int at, const char *path, mode_t mode) {
    BELOW(mkdirat);
    char space[PATH_MAX];
    const char *relative = below_watched(at, path, space);
    if (!relative) return below(at, path, mode);
    pthread_mutex_lock(&lock);
    int error = fault("create", &calls_create);
    if (error) return refuse(error);
    int result = below(at, path, mode);
    int directory = 1, after = errno;
    uint64_t inode = inode_at(at, path, &directory);
    errno = after;
    return named(MKDIR, result, inode, 1, relative, NULL);
}

int mkdir(const char *path, mode_t mode) { return mkdir_watched(AT_FDCWD, path, mode); }
int mkdirat(int at, const char *path, mode_t mode) { return mkdir_watched(at, path, mode); }

static int link_watched(int from_at, const char *from, int to_at, const char *to, int flags) {
    BELOW(linkat);
    char space[PATH_MAX];
    const char *target = below_watched(to_at, to, space);
    if (!target) return below(from_at, from, to_at, to, flags);
    pthread_mutex_lock(&lock);
    int error = fault("create", &calls_create);
    if (error) return refuse(error);
    int result = below(from_at, from, to_at, to, flags);
    int directory = 0, after = errno;
    uint64_t inode = inode_at(to_at, to, &directory);
    errno = after;
    return named(LINK, result, inode, 0, target, NULL);
}

int link(const char *from, const char *to) { return link_watched(AT_FDCWD, from, AT_FDCWD, to, 0); }
int linkat(int from_at, const char *from, int to_at, const char *to, int flags) {
    return link_watched(from_at, from, to_at, to, flags);
}

/* ---- mappings and free space ---- */

static void mapped(int protection, int flags, int fd) {
    struct descriptor *file = descriptor(fd);
    if (!file || !(protection & PROT_WRITE) || !(flags & MAP_SHARED)) return;
    pthread_mutex_lock(&lock);
    record((struct record){.kind = MAPPED, .inode = file->inode}, NULL, NULL, NULL);
    pthread_mutex_unlock(&lock);
}

/* Allocators map memory before anything is resolved, hence the plain system call. */
void *mmap(void *address, size_t length, int protection, int flags, int fd, off_t at) {
    if (fd >= 0) mapped(protection, flags, fd);
    return (void *)syscall(SYS_mmap, address, length, protection, flags, fd, at);
}
void *mmap64(void *address, size_t length, int protection, int flags, int fd, off64_t at) {
    return mmap(address, length, protection, flags, fd, at);
}

#define FREE_BODY(call, status, block)                                            \
    do {                                                                          \
        int result = (call);                                                      \
        unsigned long long bytes;                                                 \
        if (result == 0 && watched_bytes && free_bytes(&bytes))                   \
            (status)->f_bavail = (status)->f_bfree = bytes / ((block) ? (block) : 1); \
        return result;                                                            \
    } while (0)

int statvfs(const char *path, struct statvfs *status) {
    BELOW(statvfs);
    FREE_BODY(below(path, status), status, status->f_frsize);
}
int statvfs64(const char *path, struct statvfs64 *status) {
    BELOW(statvfs64);
    FREE_BODY(below(path, status), status, status->f_frsize);
}
int fstatvfs(int fd, struct statvfs *status) {
    BELOW(fstatvfs);
    FREE_BODY(below(fd, status), status, status->f_frsize);
}
int fstatvfs64(int fd, struct statvfs64 *status) {
    BELOW(fstatvfs64);
    FREE_BODY(below(fd, status), status, status->f_frsize);
}
int statfs(const char *path, struct statfs *status) {
    BELOW(statfs);
    FREE_BODY(below(path, status), status, (unsigned long)status->f_bsize);
}
int statfs64(const char *path, struct statfs64 *status) {
    BELOW(statfs64);
    FREE_BODY(below(path, status), status, (unsigned long)status->f_bsize);
}
int fstatfs(int fd, struct statfs *status) {
    BELOW(fstatfs);
    FREE_BODY(below(fd, status), status, (unsigned long)status->f_bsize);
}
int fstatfs64(int fd, struct statfs64 *status) {
    BELOW(fstatfs64);
    FREE_BODY(below(fd, status), status, (unsigned long)status->f_bsize);
}
