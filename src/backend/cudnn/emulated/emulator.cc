#include "backend/cudnn/emulated/emulator.h"

#include <algorithm>
#include <atomic>
#include <memory>
#include <numeric>
#include <stdexcept>
#include <string>
#include <vector>

#include "backend/cudnn/emulated/fiber.h"
#include "backend/cudnn/emulated/queue.h"

namespace singa::cuda {

namespace emulated {
namespace {

constexpr unsigned kWarp = 32;
constexpr unsigned kMostThreads = 1024;
constexpr size_t kMostSharedBytes = size_t{48} << 10;
constexpr unsigned kMostBlocksX = (1u << 31) - 1, kMostBlocksYZ = 65535;

std::atomic<Order> order{Order::kForward};
thread_local Position here;

enum class Waits { kNot, kForBlock, kForWarp, kForNobody };

struct Thread {
  Fiber fiber;
  unsigned number;  ///< in its block
  Waits waits = Waits::kNot;
  // Of shuffles: two places, so that the next may start while somebody still reads this one.
  uint64_t given[2] = {};
  unsigned exchanges = 0;
};

/// Makes `turns` 0 ... n − 1 in the order that is asked for; `shuffle` makes one order of many.
const std::vector<unsigned>& Turns(std::vector<unsigned>& turns, unsigned n, uint64_t shuffle) {
  turns.resize(n);
  std::iota(turns.begin(), turns.end(), 0u);
  if (order == Order::kReversed) std::reverse(turns.begin(), turns.end());
  if (order == Order::kShuffled) {
    for (unsigned i = n; i > 1; --i) {
      shuffle = shuffle * 6364136223846793005u + 1442695040888963407u;
      std::swap(turns[i - 1], turns[(shuffle >> 33) % i]);
    }
  }
  return turns;
}

class Block;
/// Whose thread runs; null while that of an independent kernel does, or none.
thread_local Block* running = nullptr;

/// While it lives, a block runs.
struct Running {
  explicit Running(Block* block) { running = block; }
  ~Running() { running = nullptr; }
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;
};

/// One block after the other; the fibers and their stacks are kept.
class Block {
 public:
  Block() : threads_(kMostThreads) {}

  /// Runs body() for the threads of a block, which are at these `places` of it.
  void Run(const std::vector<dim3>& places, uint64_t number, const std::function<void()>& body) {
    const Running running(this);
    size_ = static_cast<unsigned>(places.size());
    places_ = places.data();
    body_ = &body;
    failure_ = nullptr;
    shared_.clear();
    shared_bytes_ = 0;
    for (unsigned i = 0; i < size_; ++i) {
      Thread& thread = threads_[i];
      thread.number = i;
      thread.waits = Waits::kNot;
      thread.exchanges = 0;
      thread.fiber.Start([](void* block) { static_cast<Block*>(block)->Body(); }, this);
    }
    const unsigned warps = (size_ + kWarp - 1) / kWarp;
    while (true) {
      for (unsigned warp : Turns(warp_turns_, warps, ++number)) RunWarp(warp, number);
      const auto at_barrier = [](const Thread& t) { return t.waits == Waits::kForBlock; };
      const auto count = std::count_if(threads_.begin(), threads_.begin() + size_, at_barrier);
      if (count == 0) return;
      if (count < size_) Throw("__syncthreads is not reached by all threads of the block");
      for (unsigned i = 0; i < size_; ++i) threads_[i].waits = Waits::kNot;
    }
  }

  void Wait(Waits what) {
    Thread& thread = *current_;
    thread.waits = what;
    thread.fiber.Suspend();
  }
  uint64_t Exchange(uint64_t bits, unsigned lane) {
    if (size_ % kWarp != 0) Fail("a shuffle in a block that is not made of whole warps");
    Thread& thread = *current_;
    const unsigned place = thread.exchanges++ % 2;
    thread.given[place] = bits;
    Wait(Waits::kForWarp);
    const unsigned self = thread.number;
    const unsigned other = self / kWarp * kWarp + lane;
    return lane < kWarp && other < size_ ? threads_[other].given[place] : bits;
  }
  unsigned Lane() const { return current_->number % kWarp; }
  void Fail(const char* what) {
    failure_ = what;
    current_->waits = Waits::kForNobody;
    current_->fiber.Leave();
  }
  void* Shared(const void* key, size_t bytes) {
    for (auto& [of, memory] : shared_)
      if (of == key) return memory.get();
    if ((shared_bytes_ += bytes) > kMostSharedBytes) Fail("more than 48 KB of shared memory");
    shared_.emplace_back(key, new (std::align_val_t{64}) char[bytes]);
    std::memset(shared_.back().second.get(), 0xff, bytes);
    return shared_.back().second.get();
  }

 private:
  struct Aligned {
    void operator()(char* memory) const { ::operator delete[](memory, std::align_val_t{64}); }
  };

  void Body() {
    (*body_)();
    current_->waits = Waits::kForNobody;
    current_->fiber.Leave();
  }

  /// Until all its threads wait for the block, or are at their end.
  void RunWarp(unsigned warp, uint64_t number) {
    const unsigned first = warp * kWarp, count = std::min(kWarp, size_ - first);
    while (true) {
      bool ran = false;
      for (unsigned lane : Turns(lane_turns_, count, ++number * 31 + warp)) {
        Thread& thread = threads_[first + lane];
        if (thread.waits != Waits::kNot) continue;
        ran = true;
        current_ = &thread;
        here.thread = places_[thread.number];
        thread.fiber.Resume();
        current_ = nullptr;
        if (failure_) Throw(failure_);
      }
      if (!ran) return;
      unsigned waiting = 0;
      for (unsigned lane = 0; lane < count; ++lane)
        waiting += threads_[first + lane].waits == Waits::kForWarp;
      if (waiting == 0) return;
      if (waiting < count) Throw("a shuffle or __syncwarp is not reached by all lanes of the warp");
      for (unsigned lane = 0; lane < count; ++lane) threads_[first + lane].waits = Waits::kNot;
    }
  }

  [[noreturn]] void Throw(const std::string& what) {
    current_ = nullptr;
    throw std::logic_error("emulated kernel: " + what);
  }

  std::vector<Thread> threads_;
  unsigned size_ = 0;
  const dim3* places_ = nullptr;
  const std::function<void()>* body_ = nullptr;
  Thread* current_ = nullptr;
  const char* failure_ = nullptr;
  std::vector<std::pair<const void*, std::unique_ptr<char[], Aligned>>> shared_;
  size_t shared_bytes_ = 0;
  std::vector<unsigned> warp_turns_, lane_turns_;
};

/// What a kernel that was launched as independent must not do.
void RefuseIndependent() {
  if (!running)
    throw std::logic_error(
        "emulated kernel: a barrier or shared memory, but launched as "
        "independent");
}

}  // namespace

void SetOrder(Order wanted) { order = wanted; }
Position& Here() { return here; }

unsigned LaneOf() {
  RefuseIndependent();
  return running->Lane();
}

void BlockBarrier() {
  RefuseIndependent();
  running->Wait(Waits::kForBlock);
}

void WarpBarrier(unsigned mask) {
  RefuseIndependent();
  if (mask != 0xffffffffu) Fail("only whole warps can wait here");
  running->Wait(Waits::kForWarp);
}

uint64_t Exchange(unsigned mask, uint64_t bits, unsigned lane) {
  RefuseIndependent();
  if (mask != 0xffffffffu) Fail("only whole warps can shuffle here");
  return running->Exchange(bits, lane);
}

unsigned Ballot(unsigned mask, bool vote) {
  const unsigned own = unsigned{vote} << LaneOf();
  unsigned all = own;
  for (int bits = 1; bits < 32; bits *= 2)
    all |= static_cast<unsigned>(Exchange(mask, all, LaneOf() ^ static_cast<unsigned>(bits)));
  return all;
}

void* SharedMemory(const void* key, size_t bytes) {
  RefuseIndependent();
  return running->Shared(key, bytes);
}

void Fail(const char* what) {
  if (!running) throw std::logic_error(std::string("emulated kernel: ") + what);
  running->Fail(what);
  std::abort();  // nobody resumes it
}

namespace {

/// Runs body() for the threads of all blocks, one block after the other.
void RunNow(dim3 grid, dim3 size, bool independent, const std::function<void()>& body) {
  const unsigned threads = size.x * size.y * size.z;
  const unsigned blocks = grid.x * grid.y * grid.z;
  std::vector<dim3> places;
  for (unsigned i = 0; i < threads; ++i)
    places.emplace_back(i % size.x, i / size.x % size.y, i / size.x / size.y);
  std::vector<unsigned> thread_turns, block_turns;
  Turns(thread_turns, threads, blocks);
  Position position;
  position.block_size = size;
  position.grid_size = grid;
  for (unsigned b : Turns(block_turns, blocks, threads)) {
    position.block = {b % grid.x, b / grid.x % grid.y, b / grid.x / grid.y};
    here = position;
    if (!independent) {
      thread_local Block block;
      block.Run(places, b, body);
      continue;
    }
    for (unsigned i : thread_turns) {
      here.thread = places[i];
      body();
    }
  }
}

}  // namespace

void Run(Stream stream, dim3 grid, dim3 size, bool independent, std::function<void()> body) {
  if (grid.x == 0 || grid.y == 0 || grid.z == 0) return;
  if (size.x * size.y * size.z == 0 || size.x * size.y * size.z > kMostThreads ||
      grid.x > kMostBlocksX || grid.y > kMostBlocksYZ || grid.z > kMostBlocksYZ)
    throw std::logic_error("emulated kernel: no such grid");
  if (!stream) {  // tests of kernels alone
    RunNow(grid, size, independent, body);
    return;
  }
  Enqueue(stream, [grid, size, independent, body = std::move(body)] {
    RunNow(grid, size, independent, body);
  });
}

}  // namespace emulated
}  // namespace singa::cuda
