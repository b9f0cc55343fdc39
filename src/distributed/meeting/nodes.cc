#include "distributed/meeting/nodes.h"

#include "singa/core/error.h"

namespace singa::distributed {

void Nodes::CheckPlace(int rank, int world_size) {
  const char* op = "Communicator";
  Check(world_size >= 1 && world_size <= 4096, op, "world_size must be from 1 to 4096, got ",
        world_size);
  Check(rank >= 0 && rank < world_size, op, "rank must be from 0 to ", world_size - 1, ", got ",
        rank);
}

Nodes::Nodes(int rank, std::vector<std::string> machines) : rank_(rank) {
  const int world = static_cast<int>(machines.size());
  CheckPlace(rank, world);
  const auto machine = [&](int r) -> const std::string& {
    return machines[static_cast<size_t>(r)];
  };
  for (int r = 0; r < world; ++r) {
    if (r == 0 || machine(r) != machine(r - 1)) first_.push_back(r);
    node_.push_back(static_cast<int>(first_.size()) - 1);
    if (machine(r) != machine(rank)) continue;
    ++local_size_;
    local_rank_ += r < rank;
  }
  first_.push_back(world);
}

}  // namespace singa::distributed
