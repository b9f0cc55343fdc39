#include "distributed/transport/transport.h"

namespace singa::distributed {

bool IsReady(const NodeMemory& memory, const Chunk& chunk) {
  const Nodes& nodes = memory.nodes();
  const auto has = [&](int rank, Stage stage) {
    return memory.At(rank).count(stage).load() > chunk.number;
  };
  const int own = nodes.own();
  if (chunk.kind == Chunk::Kind::kSlot)
    return !nodes.IsLocal(chunk.rank) || has(chunk.rank, Stage::kWritten);
  if (!nodes.IsLocal(chunk.rank)) return true;
  for (int r = nodes.first(own); r < nodes.end(own); ++r)
    if (!has(r, Stage::kCombined)) return false;
  return true;
}

}  // namespace singa::distributed
