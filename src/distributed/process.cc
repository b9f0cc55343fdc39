#include "distributed/process.h"

#include <signal.h>
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

Process Process::Current() {
  Process self;
  self.id = getpid();
  char state = 0;
  ReadStat(self.id, &state, &self.start);
  return self;
}

bool Process::Lives() const {
  if (kill(id, 0) != 0 && errno == ESRCH) return false;
  char state = 0;
  uint64_t now_start = 0;
  if (!ReadStat(id, &state, &now_start)) return true;
  return now_start == start && state != 'Z' && state != 'X';
}

uint64_t SharedClock() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000u + static_cast<uint64_t>(now.tv_nsec);
}

}  // namespace singa::distributed
