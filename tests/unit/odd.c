/* A file system that refuses calls: fsync (ODD_FSYNC) or rename (ODD_RENAME) of folders whose path has /odd/ in it. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int refuses(const char *what, const char *path) { return getenv(what) && strstr(path, "/odd/"); }

int fsync(int descriptor) {
  int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, "fsync");
  struct stat status;
  char link[64], path[4097] = "";
  snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
  if (!fstat(descriptor, &status) && S_ISDIR(status.st_mode) && readlink(link, path, 4095) > 0) {
    strcat(path, "/");
    if (refuses("ODD_FSYNC", path)) { errno = EINVAL; return -1; }
  }
  return real(descriptor);
}

int rename(const char *from, const char *to) {
  int (*real)(const char *, const char *) = (int (*)(const char *, const char *))dlsym(RTLD_NEXT, "rename");
  struct stat status;
  if (!lstat(from, &status) && S_ISDIR(status.st_mode) && refuses("ODD_RENAME", from)) { errno = ENOSYS; return -1; }
  return real(from, to);
}
