#include "backend/cuda/runtime/uploads.h"

namespace singa::cuda {

void* Uploads::Send(const void* host, size_t bytes, const char* op) {
  const std::lock_guard<std::mutex> lock(staging_mutex_);
  void* data = allocator_.Allocate(bytes, stream_, op);
  Event arrived = nullptr;
  try {
    staging_.ToDevice(static_cast<char*>(data), static_cast<const char*>(host), bytes, stream_);
    arrived = runtime::NewEvent();
    runtime::Record(arrived, stream_);
    const std::lock_guard<std::mutex> sent_lock(sent_mutex_);
    sent_[data] = arrived;
  } catch (...) {
    if (arrived) runtime::DeleteEvent(arrived);
    allocator_.Free(data);
    throw;
  }
  return data;
}

void Uploads::Await(const void* data, Stream user) {
  const std::lock_guard<std::mutex> lock(sent_mutex_);
  const auto found = sent_.find(data);
  if (found == sent_.end()) return;
  runtime::QueueWait(found->second, user);
  allocator_.RecordUse(data, user);
  runtime::DeleteEvent(found->second);
  sent_.erase(found);
}

void Uploads::Forget(const void* data) noexcept {
  const std::lock_guard<std::mutex> lock(sent_mutex_);
  const auto found = sent_.find(data);
  if (found == sent_.end()) return;
  try {
    runtime::DeleteEvent(found->second);
  } catch (const Error&) {
    // Errors of a failed device were reported before.
  }
  sent_.erase(found);
}

void Uploads::Release() {
  staging_.Release();
  for (const auto& [data, arrived] : sent_) runtime::DeleteEvent(arrived);
  sent_.clear();
}

}  // namespace singa::cuda
