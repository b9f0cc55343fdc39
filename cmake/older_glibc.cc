// What singa's libraries need of newer versions of glibc than the oldest one that a wheel is for
// (SingaManylinux.cmake). It is hidden: each library has its own.

#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <ctime>

#define SINGA_HIDDEN __attribute__((visibility("hidden")))

extern "C" {

/// Since glibc 2.32: whether counts of references need no atomic operations. Here they always do.
SINGA_HIDDEN char __libc_single_threaded = 0;

// Before glibc 2.33 these were inline functions.
SINGA_HIDDEN int stat(const char* path, struct stat* status) noexcept {
  return static_cast<int>(syscall(SYS_newfstatat, AT_FDCWD, path, status, 0));
}
SINGA_HIDDEN int lstat(const char* path, struct stat* status) noexcept {
  return static_cast<int>(syscall(SYS_newfstatat, AT_FDCWD, path, status, AT_SYMLINK_NOFOLLOW));
}
SINGA_HIDDEN int fstat(int file, struct stat* status) noexcept {
  return static_cast<int>(syscall(SYS_fstat, file, status));
}

/// Since glibc 2.30: waits until `clock` shows a time. Before, a time of day is all that one can
/// wait for, and that may be set meanwhile. So this returns after a second at the latest, as if
/// woken; callers then read the clock.
SINGA_HIDDEN int pthread_cond_clockwait(pthread_cond_t* condition, pthread_mutex_t* mutex,
                                        clockid_t clock, const timespec* until) {
  constexpr long kSecond = 1'000'000'000;
  timespec now, end;
  clock_gettime(clock, &now);
  clock_gettime(CLOCK_REALTIME, &end);
  const double seconds = static_cast<double>(until->tv_sec - now.tv_sec) +
                         static_cast<double>(until->tv_nsec - now.tv_nsec) / kSecond;
  end.tv_nsec += static_cast<long>(std::clamp(seconds, 0.0, 1.0) * kSecond);
  end.tv_sec += end.tv_nsec / kSecond;
  end.tv_nsec %= kSecond;
  const int result = pthread_cond_timedwait(condition, mutex, &end);
  return result == ETIMEDOUT && seconds > 1 ? 0 : result;
}

}  // extern "C"
