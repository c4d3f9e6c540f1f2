/* A wall clock that a test sets: CLOCK_REALTIME and as many seconds as the file CKPTBENCH_TEST_CLOCK says. Preloaded. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static long set_by(void) {
    char text[32] = "";
    const char *path = getenv("CKPTBENCH_TEST_CLOCK");
    int file = path ? (int)syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0) : -1;
    if (file < 0) return 0;
    long length = syscall(SYS_read, file, text, sizeof text - 1);
    syscall(SYS_close, file);
    return length > 0 ? atol(text) : 0;
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    int failed = (int)syscall(SYS_clock_gettime, clock, now);
    if (!failed && clock == CLOCK_REALTIME) now->tv_sec += set_by();
    return failed;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    struct timespec real;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &real);
    now->tv_sec = real.tv_sec;
    now->tv_usec = real.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *into) {
    struct timespec real;
    clock_gettime(CLOCK_REALTIME, &real);
    if (into) *into = real.tv_sec;
    return real.tv_sec;
}
