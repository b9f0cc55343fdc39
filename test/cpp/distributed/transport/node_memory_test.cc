#include "distributed/transport/node_memory.h"

#include <algorithm>
#include <cstring>

#include "distributed/ranks.h"
#include "support.h"

namespace singa::test {
namespace {

using namespace distributed;

/// Machines with one rank each, but for the last one, which has two.
std::vector<std::string> Machines(int nodes) {
  std::vector<std::string> machines;
  for (int n = 0; n < nodes; ++n) machines.push_back(std::to_string(n));
  machines.push_back(machines.back());
  return machines;
}

TEST(NodeMemory, BuffersDoNotOverlap) {
  for (const int nodes : {1, 2, 3, 5, 20}) {
    NodeMemory memory(JobName(), Nodes(nodes, Machines(nodes)));
    memory.Unlink();
    std::vector<char*> places;
    const auto add = [&](uint64_t buffers, auto place) {
      for (uint64_t number = 0; number < buffers; ++number) {
        places.push_back(place(number));
        EXPECT_EQ(place(number + buffers), places.back());  // used again
      }
    };
    for (int r = 0; r < memory.nodes().world_size(); ++r)
      add(memory.nodes().IsLocal(r) ? memory.buffers() : memory.shared_buffers(),
          [&](uint64_t number) { return memory.Slot(r, number); });
    add(memory.buffers(), [&](uint64_t number) { return memory.Result(number); });
    if (nodes > 1) add(memory.buffers(), [&](uint64_t number) { return memory.Partial(number); });
    std::sort(places.begin(), places.end());
    for (size_t i = 1; i < places.size(); ++i)
      EXPECT_GE(places[i] - places[i - 1], static_cast<std::ptrdiff_t>(memory.chunk_bytes()));
    std::memset(places.back(), 1, memory.chunk_bytes());  // all of it is there
  }
}

TEST(NodeMemory, EveryHopHasTwoChunks) {
  for (const int nodes : {2, 3, 5, 20}) {
    NodeMemory memory(JobName(), Nodes(0, Machines(nodes)));
    memory.Unlink();
    EXPECT_GE(memory.buffers(), 4u * static_cast<uint64_t>(nodes - 1));
    EXPECT_GE(memory.chunk_bytes(), size_t{64} << 10);
  }
}

}  // namespace
}  // namespace singa::test
