#include "emulated_gpu/emulator.h"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <numeric>
#include <stdexcept>
#include <string>
#include <vector>

#include "emulated_gpu/fiber.h"
#include "emulated_gpu/queue.h"
#include "singa/core/error.h"
#include "singa/core/stats.h"

namespace singa::cuda {

namespace emulated {
namespace {

constexpr unsigned kWarp = 32;
constexpr unsigned kMostThreads = 1024;
constexpr size_t kMostSharedBytes = size_t{48} << 10;
constexpr unsigned kMostBlocksX = (1u << 31) - 1, kMostBlocksYZ = 65535;

std::atomic<Order>& TheOrder() {
  static std::atomic<Order> order{static_cast<Order>(
      Choice("SINGA_CUDA_EMULATED_THREADS", {"forward", "reversed", "shuffled"}))};
  return order;
}

thread_local Position here;
/// The running kernel; `fiber` is null if none is running.
struct Running {
  const char* op = "";
  Fiber* fiber = nullptr;
  Moment moment = {};
  std::string failure = {};
};
thread_local Running now;
thread_local Races races;

/// Throws the failure that a fiber reported when it was left.
void RaiseFailure() {
  if (now.failure.empty()) return;
  throw std::logic_error("emulated kernel of " + std::string(now.op) + ": " +
                         std::exchange(now.failure, {}));
}

enum class Waits { kNot, kForBlock, kForWarp, kForShuffle, kForNobody };

struct Thread {
  Fiber fiber;
  uint16_t number;  ///< in the block
  uint16_t warp_barriers = 0;
  Waits waits = Waits::kNot;
  // Values for shuffles. There are two, so that the next shuffle may start while threads still read
  // this one.
  uint64_t given[2] = {};
  unsigned exchanges = 0;
};

/// Fills `turns` with 0 ... n − 1 in the present order; `shuffle` seeds the shuffled order.
const std::vector<unsigned>& Turns(std::vector<unsigned>& turns, unsigned n, uint64_t shuffle) {
  const Order order = TheOrder();
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
/// The block whose thread is running; null if it belongs to an independent kernel, or if none runs.
thread_local Block* running = nullptr;

/// Marks a block as running during its lifetime.
struct RunningBlock {
  explicit RunningBlock(Block* block) { running = block; }
  ~RunningBlock() { running = nullptr; }
  RunningBlock(const RunningBlock&) = delete;
  RunningBlock& operator=(const RunningBlock&) = delete;
};

/// Runs the fiber until it suspends itself or is left.
void Resume(Fiber& fiber) {
  now.fiber = &fiber;
  fiber.Resume();
  now.fiber = nullptr;
  RaiseFailure();
}

/// Runs blocks one after the other. It keeps the fibers and their stacks.
class Block {
 public:
  Block() : threads_(kMostThreads) {}

  /// Runs body() for the threads of a block, whose indices are `places`.
  void Run(const std::vector<dim3>& places, uint64_t number, const std::function<void()>& body) {
    const RunningBlock running(this);
    size_ = static_cast<unsigned>(places.size());
    places_ = places.data();
    body_ = &body;
    shared_.clear();
    shared_bytes_ = 0;
    now.moment.barriers = 0;
    for (unsigned i = 0; i < size_; ++i) {
      Thread& thread = threads_[i];
      thread.number = static_cast<uint16_t>(i);
      thread.warp_barriers = 0;
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
      ++now.moment.barriers;
    }
  }

  void Wait(Waits what) {
    Thread& thread = *current_;
    thread.waits = what;
    thread.fiber.Suspend();
  }
  void WarpBarrier() {
    Wait(Waits::kForWarp);
    now.moment.warp_barriers = ++current_->warp_barriers;
  }
  uint64_t Exchange(uint64_t bits, unsigned lane) {
    if (size_ % kWarp != 0) Fail("a shuffle in a block that is not made of whole warps");
    Thread& thread = *current_;
    const unsigned place = thread.exchanges++ % 2;
    thread.given[place] = bits;
    Wait(Waits::kForShuffle);
    const unsigned self = thread.number;
    const unsigned other = self / kWarp * kWarp + lane;
    return lane < kWarp && other < size_ ? threads_[other].given[place] : bits;
  }
  unsigned Lane() const { return current_->number % kWarp; }
  void* Shared(const void* key, size_t bytes) {
    for (auto& [of, memory] : shared_)
      if (of == key) return memory.get();
    if ((shared_bytes_ += bytes) > kMostSharedBytes) Fail("more than 48 KB of shared memory");
    shared_.emplace_back(key, new (std::align_val_t{64}) char[bytes]);
    std::memset(shared_.back().second.get(), 0xff, bytes);
    if (watching) races.Forget(shared_.back().second.get(), bytes);  // an earlier block's accesses
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

  /// Runs a warp until all its threads wait for the block or have ended.
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
        now.moment.thread = thread.number;
        now.moment.warp_barriers = thread.warp_barriers;
        Resume(thread.fiber);
      }
      if (!ran) return;
      unsigned at_barrier = 0, at_shuffle = 0;
      for (unsigned lane = 0; lane < count; ++lane) {
        at_barrier += threads_[first + lane].waits == Waits::kForWarp;
        at_shuffle += threads_[first + lane].waits == Waits::kForShuffle;
      }
      if (at_barrier + at_shuffle == 0) return;
      if (std::max(at_barrier, at_shuffle) < count)
        Throw("a shuffle or __syncwarp is not reached by all lanes of the warp");
      for (unsigned lane = 0; lane < count; ++lane) threads_[first + lane].waits = Waits::kNot;
    }
  }

  static void Throw(const char* what) {
    now.failure = what;
    RaiseFailure();
  }

  std::vector<Thread> threads_;
  unsigned size_ = 0;
  const dim3* places_ = nullptr;
  const std::function<void()>* body_ = nullptr;
  Thread* current_ = nullptr;
  std::vector<std::pair<const void*, std::unique_ptr<char[], Aligned>>> shared_;
  size_t shared_bytes_ = 0;
  std::vector<unsigned> warp_turns_, lane_turns_;
};

/// Fails for calls that a kernel launched as independent must not make.
void RefuseIndependent() {
  if (!running) Fail("a barrier or shared memory, but launched as independent");
}

/// Runs independent threads one after the other, in a single fiber, which a failure leaves.
class Alone {
 public:
  void Run(const std::function<void()>& all) {
    fiber_.Start(
        [](void* body) {
          (*static_cast<const std::function<void()>*>(body))();
          now.fiber->Leave();
        },
        const_cast<std::function<void()>*>(&all));
    Resume(fiber_);
  }

 private:
  Fiber fiber_;
};

}  // namespace

std::atomic<bool> watching{false};
#if defined(SINGA_EMULATED_HOOKS)
bool Watch(bool wanted) {
  watching = wanted;
  return true;
}
#else
bool Watch(bool) { return false; }
#endif

void NoteRange(AccessKind kind, const void* data, size_t bytes) {
  Moment other;
  if (!now.fiber || now.fiber->Holds(data) || races.Note(kind, data, bytes, now.moment, &other))
    return;
  const Moment& self = now.moment;
  char text[200];
  std::snprintf(text, sizeof(text),
                "a race: thread %u of block %u %s %zu bytes that thread %u of block %u uses%s",
                self.thread, self.block, kind == AccessKind::kRead ? "reads" : "writes", bytes,
                other.thread, other.block,
                self.block == other.block ? ", with no barrier between" : "");
  Fail(text);
}

void FailMisaligned(const void* data, size_t bytes) {
  if (!now.fiber || now.fiber->Holds(data)) return;
  char text[100];
  std::snprintf(text, sizeof(text), "%zu bytes at an address that is no multiple of %zu", bytes,
                bytes);
  Fail(text);
}

std::string Setting(const char* name) {
  const char* text = std::getenv(name);
  return text ? text : "";
}

size_t Choice(const char* name, std::initializer_list<const char*> words) {
  const std::string text = Setting(name);
  const auto* found = std::find(words.begin(), words.end(), text);
  Check(text.empty() || found != words.end(), "emulated GPU", name, " cannot be '", text, "'");
  return text.empty() ? 0 : static_cast<size_t>(found - words.begin());
}

void SetOrder(Order wanted) { TheOrder() = wanted; }
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
  running->WarpBarrier();
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
  if (!now.fiber) throw std::logic_error(std::string("emulated kernel: ") + what);
  now.failure = what;
  now.fiber->Leave();
  std::abort();  // nobody resumes the fiber
}

namespace {

/// Runs body() for the threads of all blocks, one block after the other.
void RunNow(const char* op, dim3 grid, dim3 size, bool independent,
            const std::function<void()>& body) {
  const unsigned threads = size.x * size.y * size.z;
  const unsigned blocks = grid.x * grid.y * grid.z;
  std::vector<dim3> places;
  for (unsigned i = 0; i < threads; ++i)
    places.emplace_back(i % size.x, i / size.x % size.y, i / size.x / size.y);
  std::vector<unsigned> thread_turns, block_turns;
  Turns(thread_turns, threads, blocks);
  Turns(block_turns, blocks, threads);
  Position position;
  position.block_size = size;
  position.grid_size = grid;
  now.op = op;
  const uint32_t launch = now.moment.launch + 1;
  now.moment = Moment();
  now.moment.launch = launch;
  const auto begin = [&](unsigned b) {
    position.block = {b % grid.x, b / grid.x % grid.y, b / grid.x / grid.y};
    here = position;
    now.moment.block = b;
  };
  if (independent) {
    thread_local Alone alone;
    alone.Run([&] {
      for (unsigned b : block_turns) {
        begin(b);
        for (unsigned i : thread_turns) {
          here.thread = places[i];
          now.moment.thread = static_cast<uint16_t>(i);
          body();
        }
      }
    });
    return;
  }
  thread_local Block block;
  for (unsigned b : block_turns) {
    begin(b);
    block.Run(places, b, body);
  }
}

}  // namespace

void Run(Stream stream, dim3 grid, dim3 size, bool independent, std::function<void()> body) {
  if (grid.x == 0 || grid.y == 0 || grid.z == 0) return;
  if (size.x * size.y * size.z == 0 || size.x * size.y * size.z > kMostThreads ||
      grid.x > kMostBlocksX || grid.y > kMostBlocksYZ || grid.z > kMostBlocksYZ)
    throw std::logic_error("emulated kernel: no such grid");
  if (!stream) {  // tests of kernels without a device
    RunNow(CurrentOp(), grid, size, independent, body);
    return;
  }
  Enqueue(stream, [op = CurrentOp(), grid, size, independent, body = std::move(body)] {
    RunNow(op, grid, size, independent, body);
  });
}

}  // namespace emulated
}  // namespace singa::cuda
