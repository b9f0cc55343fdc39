#include "distributed/meeting/process.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <ctime>
#include <fstream>
#include <sstream>
#include <string>

namespace singa::distributed {
namespace {

/// State and start of a process: fields 3 and 22 of /proc/<id>/stat. Field 2, its name, is in
/// parentheses and may contain anything.
bool ReadStat(int32_t id, char* state, uint64_t* start) {
  std::ifstream file("/proc/" + std::to_string(id) + "/stat");
  std::string line;
  if (!std::getline(file, line)) return false;
  const size_t end = line.rfind(')');
  if (end == line.npos) return false;
  std::istringstream fields(line.substr(end + 1));
  if (!(fields >> *state)) return false;
  std::string skipped;
  for (int field = 4; field < 22; ++field) fields >> skipped;
  return static_cast<bool>(fields >> *start);
}

}  // namespace

Process Process::Of(int32_t id) {
  Process process;
  process.id = id;
  char state = 0;
  ReadStat(id, &state, &process.start);
  return process;
}

Process Process::Current() { return Of(getpid()); }

bool Process::Lives() const {
  if (kill(id, 0) != 0 && errno == ESRCH) return false;
  char state = 0;
  uint64_t now_start = 0;
  if (!ReadStat(id, &state, &now_start)) return true;
  return now_start == start && state != 'Z' && state != 'X';
}

void Process::KillIn(unsigned seconds) const {
#if defined(SYS_pidfd_open) && defined(SYS_pidfd_send_signal)
  const auto descriptor = static_cast<int>(syscall(SYS_pidfd_open, id, 0));
  if (descriptor < 0) return;
  if (Lives()) {  // the number was not given to another process before
    const pid_t child = fork();
    // Calls that are safe in a child of a process with threads. The grandchild belongs to init.
    if (child == 0) {
      if (fork() != 0) _exit(0);
      setsid();
      const int nothing = open("/dev/null", O_RDWR);  // readers of the output must not wait for it
      for (int stream = 0; stream < 3; ++stream) dup2(nothing, stream);
      for (int other = 3; other < 1024; ++other)
        if (other != descriptor) close(other);
      sleep(seconds);
      syscall(SYS_pidfd_send_signal, descriptor, SIGKILL, nullptr, 0);
      _exit(0);
    }
    if (child > 0) waitpid(child, nullptr, 0);
  }
  close(descriptor);
#else
  (void)seconds;
#endif
}

uint64_t SharedClock() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000u + static_cast<uint64_t>(now.tv_nsec);
}

}  // namespace singa::distributed
