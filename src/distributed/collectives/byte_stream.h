#pragma once

#include <cstddef>
#include <vector>

namespace singa::distributed {

/// The memory of several tensors, one after the other.
class ByteStream {
 public:
  void Add(void* data, size_t bytes);
  /// Adds bytes that nobody reads, and that are not written.
  void AddGap(size_t bytes) { Add(nullptr, bytes); }
  size_t bytes() const { return ends_.empty() ? 0 : ends_.back(); }
  /// Copies bytes [begin, end) to or from `buffer`.
  void Read(size_t begin, size_t end, char* buffer) const;
  void Write(size_t begin, size_t end, const char* buffer) const;

 private:
  template <class Copy>
  void ForParts(size_t begin, size_t end, const Copy& copy) const;

  std::vector<char*> starts_;
  std::vector<size_t> ends_;  // in the stream
};

}  // namespace singa::distributed
