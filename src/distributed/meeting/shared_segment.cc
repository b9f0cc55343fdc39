#include "distributed/meeting/shared_segment.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "singa/core/error.h"

namespace singa::distributed {
namespace {

constexpr size_t kLongestName = 200;

[[noreturn]] void Fail(const std::string& name, const char* what, int error) {
  throw std::runtime_error(detail::Message("Communicator", "shared memory ", name, ": ", what, ": ",
                                           std::strerror(error)));
}

}  // namespace

SharedSegment::SharedSegment(const std::string& name, size_t bytes)
    : name_("/singa-" + name), bytes_(bytes) {
  Check(!name.empty() && name.size() <= kLongestName && name.find('/') == name.npos, "Communicator",
        "a job's name must have 1 to ", kLongestName, " characters and no slash, got '", name, "'");
  const int file = shm_open(name_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (file < 0) Fail(name_, "cannot be opened", errno);
  // Reserves the pages: without them, a write would end the process by SIGBUS.
  const int error = posix_fallocate(file, 0, static_cast<off_t>(bytes));
  void* data = MAP_FAILED;
  if (error == 0) data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  const int map_error = errno;
  close(file);
  if (error != 0 || data == MAP_FAILED) {
    Unlink();
    if (error != 0) Fail(name_, "has no room in /dev/shm", error);
    Fail(name_, "cannot be mapped", map_error);
  }
  data_ = data;
}

SharedSegment::~SharedSegment() {
  if (data_) munmap(data_, bytes_);
}

void SharedSegment::Unlink() noexcept { shm_unlink(name_.c_str()); }

}  // namespace singa::distributed
