#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "singa/core/device.h"
#include "singa/core/node.h"

namespace singa {

/// The implementation of Arena.
class ArenaMemory {
 public:
  explicit ArenaMemory(DevicePtr device);
  ~ArenaMemory();
  ArenaMemory(const ArenaMemory&) = delete;
  ArenaMemory& operator=(const ArenaMemory&) = delete;

  void Reserve(size_t bytes);
  char* data() const { return data_; }
  size_t bytes() const { return bytes_; }
  /// A number that changes when the memory moves.
  uint64_t generation() const { return generation_; }
  size_t prepared_bytes() const;

  /// Shares prepared results between graphs. If another graph already prepares a result in the same
  /// way, `preparation` and `nodes` use the block of that graph. Each graph still runs its
  /// preparation itself when a source has changed.
  void SharePrepared(std::vector<Node>* preparation, std::vector<Node>* nodes);

 private:
  DevicePtr device_;
  char* data_ = nullptr;
  size_t bytes_ = 0;
  uint64_t generation_ = 0;
  // Prepared blocks, by a text that says how they are computed. The text contains addresses of
  // plans and blocks; the graph that holds a prepared block holds those as well.
  std::unordered_map<std::string, std::weak_ptr<Block>> prepared_;
  std::vector<std::weak_ptr<const Plan>> plans_;  // of preparations, all different
};
using ArenaMemoryPtr = std::shared_ptr<ArenaMemory>;

}  // namespace singa
