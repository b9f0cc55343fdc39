#pragma once

#include <cstddef>
#include <string>

namespace singa::distributed {

/// Memory that the processes of one machine share, found by name. All bytes are zero at first.
///
/// Nobody is its creator: every process opens or makes it with the same size. The one that knows
/// that all have it calls Unlink, and the system frees it when the last process has gone, whatever
/// ends it.
class SharedSegment {
 public:
  /// Raises std::invalid_argument for a name that is empty, too long or has a slash, and
  /// std::runtime_error if there is not enough shared memory.
  SharedSegment(const std::string& name, size_t bytes);
  ~SharedSegment();
  SharedSegment(const SharedSegment&) = delete;
  SharedSegment& operator=(const SharedSegment&) = delete;

  void* data() const { return data_; }
  size_t bytes() const { return bytes_; }
  /// Removes the name. The memory stays for those that have it.
  void Unlink() noexcept;

 private:
  std::string name_;
  size_t bytes_;
  void* data_ = nullptr;
};

}  // namespace singa::distributed
