#include "distributed/collectives/byte_stream.h"

#include <algorithm>
#include <cstring>

namespace singa::distributed {

void ByteStream::Add(void* data, size_t bytes) {
  if (bytes == 0) return;
  starts_.push_back(static_cast<char*>(data));
  ends_.push_back(this->bytes() + bytes);
}

/// Calls copy(memory, offset in the range, bytes) for each tensor that the range meets.
template <class Copy>
void ByteStream::ForParts(size_t begin, size_t end, const Copy& copy) const {
  const auto first = std::upper_bound(ends_.begin(), ends_.end(), begin) - ends_.begin();
  for (size_t i = static_cast<size_t>(first), at = begin; at < end; ++i) {
    const size_t start = i > 0 ? ends_[i - 1] : 0;
    const size_t stop = std::min(end, ends_[i]);
    if (starts_[i]) copy(starts_[i] + (at - start), at - begin, stop - at);
    at = stop;
  }
}

void ByteStream::Read(size_t begin, size_t end, char* buffer) const {
  ForParts(begin, end, [&](const char* data, size_t offset, size_t bytes) {
    std::memcpy(buffer + offset, data, bytes);
  });
}

void ByteStream::Write(size_t begin, size_t end, const char* buffer) const {
  ForParts(begin, end, [&](char* data, size_t offset, size_t bytes) {
    std::memcpy(data, buffer + offset, bytes);
  });
}

}  // namespace singa::distributed
