#include "backend/cuda/runtime/staging.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace singa::cuda {

void Staging::Release() {
  for (Half& half : halves_) {
    if (!half.moved) continue;
    runtime::Wait(half.moved);
    runtime::DeleteEvent(std::exchange(half.moved, nullptr));
    if (half.data) runtime::FreePinned(std::exchange(half.data, nullptr));
  }
}

void Staging::ToDevice(char* device, const char* host, size_t bytes, Stream stream) {
  for (size_t at = 0; at < bytes; at += kBytes) {
    Half& half = Next();
    const size_t count = std::min(kBytes, bytes - at);
    std::memcpy(half.data, host + at, count);
    runtime::CopyToDevice(device + at, half.data, count, stream);
    runtime::Record(half.moved, stream);
  }
}

void Staging::ToHost(char* host, const char* device, size_t bytes, Stream stream) {
  size_t arrived = 0;
  Half* underway = nullptr;
  for (size_t at = 0; at < bytes; at += kBytes) {
    Half& half = Next();
    const size_t count = std::min(kBytes, bytes - at);
    runtime::CopyToHost(half.data, device + at, count, stream);
    runtime::Record(half.moved, stream);
    if (underway) arrived += Unload(*underway, host + arrived, kBytes);
    underway = &half;
  }
  if (underway) Unload(*underway, host + arrived, bytes - arrived);
}

/// The half that was used less recently. Waits until its copy has ended.
Staging::Half& Staging::Next() {
  Half& half = halves_[std::exchange(next_, 1 - next_)];
  if (!half.moved) half.moved = runtime::NewEvent();
  if (!half.data) half.data = static_cast<char*>(runtime::MallocPinned(kBytes));
  runtime::Wait(half.moved);
  return half;
}

size_t Staging::Unload(const Half& half, char* host, size_t bytes) {
  runtime::Wait(half.moved);
  std::memcpy(host, half.data, bytes);
  return bytes;
}

}  // namespace singa::cuda
