#include "backend/cuda/runtime/runtime.h"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "backend/cuda/runtime/capture.h"
#include "emulated_gpu/emulator.h"
#include "emulated_gpu/queue.h"
#include "singa/core/environment.h"

/// A position in a stream: the amount of work that must have run.
struct CUevent_st {
  CUstream_st* stream = nullptr;
  uint64_t position = 0;
};

/// A captured node. It runs after other nodes of the same graph.
struct CUgraphNode_st {
  size_t number;
  std::function<void()> work;
  std::vector<CUgraphNode_st*> after;
};

struct Work {
  bool shared = false;                 ///< some of it waits for other processes
  std::deque<CUgraphNode_st> nodes;    // in the order of the capture; addresses are stable
  std::vector<CUgraphNode_st*> after;  ///< dependencies of the next node
};

struct CUstream_st {
  std::deque<std::function<void()>> queue;
  std::atomic<uint64_t> queued{0};      ///< in total
  std::atomic<uint64_t> run{0};         ///< in total, with the work that runs
  std::atomic<uint64_t> ended{0};       ///< in total
  uint64_t shared = 0;                  ///< what a thread has to run by itself, of all
  bool running = false;                 ///< its work, which may be waiting for another stream
  std::unique_ptr<Work> captured = {};  ///< not null during a capture
};

struct CUgraphExec_st {
  std::shared_ptr<const Work> work;
};

namespace singa::cuda {
namespace {

constexpr int kGpus = 4;
constexpr size_t kPage = 4096;

/// One lock for everything. Simple enough for tests; queued work must not queue more.
std::recursive_mutex& Mutex() {
  static auto& mutex = *new std::recursive_mutex;
  return mutex;
}

/// The address space of a GPU. Allocations are whole pages, separated by an inaccessible page, so
/// that a kernel that overruns one crashes.
class Memory {
 public:
  explicit Memory(size_t bytes) : bytes_(bytes) {
    void* base =
        mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED) throw std::bad_alloc();
    base_ = static_cast<char*>(base);
    free_[base_] = bytes;
  }

  void* Take(size_t bytes) {
    const size_t need = (std::max<size_t>(bytes, 1) + kPage - 1) / kPage * kPage + kPage;
    for (auto it = free_.begin(); it != free_.end(); ++it) {
      if (it->second < need) continue;
      char* data = it->first;
      const size_t rest = it->second - need;
      free_.erase(it);
      if (rest > 0) free_[data + need] = rest;
      used_[data] = need;
      used_bytes_ += need;
      if (open_ > 0) Protect(data, need - kPage, PROT_READ | PROT_WRITE);
      return data;
    }
    return nullptr;
  }

  bool Give(void* pointer) {
    char* data = static_cast<char*>(pointer);
    const auto it = used_.find(data);
    if (it == used_.end()) return false;
    size_t bytes = it->second;
    used_.erase(it);
    used_bytes_ -= bytes;
    madvise(data, bytes, MADV_DONTNEED);
    Protect(data, bytes, PROT_NONE);
    auto next = free_.lower_bound(data);
    if (next != free_.end() && data + bytes == next->first) {
      bytes += next->second;
      next = free_.erase(next);
    }
    if (next != free_.begin()) {
      const auto previous = std::prev(next);
      if (previous->first + previous->second == data) {
        previous->second += bytes;
        return true;
      }
    }
    free_[data] = bytes;
    return true;
  }

  /// Memory is accessible between the first Open and the last Close.
  void Open() {
    if (open_++ == 0) ProtectAll(PROT_READ | PROT_WRITE);
  }
  void Close() {
    if (--open_ == 0) ProtectAll(PROT_NONE);
  }

  size_t total() const { return bytes_; }
  size_t free() const { return bytes_ - used_bytes_; }

 private:
  static void Protect(char* data, size_t bytes, int protection) {
    if (mprotect(data, bytes, protection) != 0) throw std::bad_alloc();
  }
  void ProtectAll(int protection) {
    for (const auto& [data, bytes] : used_) Protect(data, bytes - kPage, protection);
  }

  char* base_ = nullptr;
  size_t bytes_;
  size_t used_bytes_ = 0;
  int open_ = 0;
  std::map<char*, size_t> free_, used_;
};

size_t MemoryOfEach() {
  const size_t bytes =
      std::strtoull(emulated::Setting("SINGA_CUDA_EMULATED_MEMORY").c_str(), nullptr, 10);
  if (emulated::Choice("SINGA_CUDA_EMULATED_RACES", {"0", "1"}) == 1) emulated::Watch(true);
  return bytes ? bytes / kPage * kPage : emulated::kDeviceMemory;
}

Memory& MemoryOf(int id) {
  static auto& memories = *new std::map<int, std::unique_ptr<Memory>>;
  std::unique_ptr<Memory>& memory = memories[id];
  if (!memory) memory = std::make_unique<Memory>(MemoryOfEach());
  return *memory;
}

bool Blocking() {
  static const bool blocking = EnvironmentFlag("SINGA_CUDA_BLOCKING");
  return blocking;
}

thread_local int t_used = 0;
/// In the order of creation. Guarded by Mutex().
std::vector<CUstream_st*>& Streams() {
  static auto& streams = *new std::vector<CUstream_st*>;
  return streams;
}
std::string g_fail_next;  // guarded by Mutex()
std::string g_failed;     // sticky, as on a GPU

uint64_t g_queued = 0;  // guarded by Mutex()

using emulated::StreamOrder;

struct Schedule {
  StreamOrder order = static_cast<StreamOrder>(
      emulated::Choice("SINGA_CUDA_EMULATED_STREAMS", {"late", "early", "shuffled"}));
  std::mt19937 random;
};
/// Guarded by Mutex().
Schedule& TheSchedule() {
  static auto& schedule = *new Schedule;
  return schedule;
}

/// The stream that this thread captures, and the call that has invalidated the capture.
thread_local CUstream_st* t_capture = nullptr;
thread_local std::string t_spoiled;

/// Fails for calls that CUDA forbids during a capture; the capture fails as well.
void RefuseInCapture(const char* call) {
  if (!t_capture) return;
  t_spoiled = call;
  throw Error(t_spoiled + ": operation not permitted while the thread captures");
}

void CheckAlive(const char* call) {
  if (!g_failed.empty()) throw Error(std::string(call) + ": " + g_failed);
}

void RunNext(CUstream_st& stream) {
  const std::function<void()> work = std::move(stream.queue.front());
  stream.queue.pop_front();
  ++stream.run;
  if (g_failed.empty() && !g_fail_next.empty()) g_failed = std::exchange(g_fail_next, {});
  if (g_failed.empty()) {  // as on a GPU, nothing runs after a failure
    stream.running = true;
    try {
      work();
    } catch (const std::exception& error) {
      g_failed = error.what();
    }
    stream.running = false;
  }
  ++stream.ended;
}

/// The stream that runs next when somebody waits for `wanted`.
CUstream_st& NextStream(CUstream_st& wanted) {
  Schedule& schedule = TheSchedule();
  if (schedule.order == StreamOrder::kLate) return wanted;
  std::vector<CUstream_st*> ready;
  for (CUstream_st* stream : Streams())
    if (stream != &wanted && !stream->queue.empty() && !stream->running) ready.push_back(stream);
  if (schedule.order == StreamOrder::kShuffled) ready.push_back(&wanted);
  if (ready.empty()) return wanted;
  return *ready[schedule.order == StreamOrder::kEarly ? 0 : schedule.random() % ready.size()];
}

/// Runs a stream's work up to `position`, and work of other streams as StreamOrder says.
void Run(CUstream_st& stream, uint64_t position) {
  if (stream.run >= position) return;
  for (int id = 0; id < kGpus; ++id) MemoryOf(id).Open();
  while (stream.run < position && !stream.queue.empty()) RunNext(NextStream(stream));
  for (int id = 0; id < kGpus; ++id) MemoryOf(id).Close();
}

/// Runs the work that waits for other processes.
class SharedWorker {
 public:
  /// The stream has such work by now.
  static void Wake(CUstream_st& stream) {
    stream.shared = stream.queued;
    static SharedWorker& worker = *new SharedWorker;
    worker.woken_.notify_one();
  }

 private:
  SharedWorker() {
    std::thread([this] { Loop(); }).detach();
  }
  [[noreturn]] void Loop() {
    std::unique_lock<std::recursive_mutex> lock(Mutex());
    while (true) {
      const auto found =
          std::find_if(Streams().begin(), Streams().end(),
                       [](const CUstream_st* stream) { return stream->run < stream->shared; });
      if (found == Streams().end()) {
        woken_.wait(lock);
      } else {
        Run(**found, (*found)->shared);
      }
    }
  }
  std::condition_variable_any woken_;
};

/// The captured nodes in one of the orders that their dependencies permit: as captured (early),
/// each as late as possible (late), or random (shuffled).
std::vector<size_t> OrderOf(const Work& captured) {
  const size_t count = captured.nodes.size();
  std::vector<std::vector<size_t>> before(count), behind(count);
  for (size_t n = 0; n < count; ++n)
    for (const CUgraphNode_st* other : captured.nodes[n].after) {
      before[n].push_back(other->number);
      behind[other->number].push_back(n);
    }
  Schedule& schedule = TheSchedule();
  const bool shuffled = schedule.order == StreamOrder::kShuffled;
  const bool from_the_end =
      schedule.order == StreamOrder::kLate || (shuffled && schedule.random() % 2);
  if (from_the_end) std::swap(before, behind);
  std::vector<size_t> order;
  std::vector<size_t> missing(count);
  std::set<size_t> ready;
  for (size_t n = 0; n < count; ++n)
    if ((missing[n] = before[n].size()) == 0) ready.insert(n);
  while (!ready.empty()) {
    auto next = ready.begin();
    if (shuffled) std::advance(next, static_cast<int>(schedule.random() % ready.size()));
    order.push_back(*next);
    ready.erase(next);
    for (size_t n : behind[order.back()])
      if (--missing[n] == 0) ready.insert(n);
  }
  if (from_the_end) std::reverse(order.begin(), order.end());
  return order;
}

/// Queues work that Queued() does not count, or has counted already.
void Push(CUstream_st& stream, std::function<void()> work) {
  stream.queue.push_back(std::move(work));
  ++stream.queued;
  if (Blocking()) Run(stream, stream.queued);
  if (stream.queue.size() > emulated::kMostWaiting)
    Run(stream, stream.queued - emulated::kMostWaiting / 2);
}

}  // namespace

namespace emulated {

void EnqueueShared(Stream stream, std::function<void()> work) {
  const std::lock_guard<std::recursive_mutex> lock(Mutex());
  Enqueue(stream, std::move(work));
  if (Work* captured = stream->captured.get()) {
    captured->shared = true;
  } else {
    SharedWorker::Wake(*stream);
  }
}

void Enqueue(Stream stream, std::function<void()> work) {
  const std::lock_guard<std::recursive_mutex> lock(Mutex());
  if (Work* captured = stream->captured.get()) {
    captured->nodes.push_back({captured->nodes.size(), std::move(work), captured->after});
    captured->after = {&captured->nodes.back()};
    return;
  }
  ++g_queued;
  Push(*stream, std::move(work));
}

int CurrentGpu() { return t_used; }

uint64_t Queued() {
  const std::lock_guard<std::recursive_mutex> lock(Mutex());
  return g_queued;
}

uint64_t Waiting(Stream stream) {
  const std::lock_guard<std::recursive_mutex> lock(Mutex());
  return stream->queued - stream->run;
}

void SetStreamOrder(StreamOrder order, unsigned seed) {
  const std::lock_guard<std::recursive_mutex> lock(Mutex());
  TheSchedule().order = order;
  TheSchedule().random.seed(seed);
}

void FailNext(const char* message) {
  const std::lock_guard<std::recursive_mutex> lock(Mutex());
  g_fail_next = message;
}

void Reset() {
  const std::lock_guard<std::recursive_mutex> lock(Mutex());
  g_fail_next.clear();
  g_failed.clear();
}

}  // namespace emulated

namespace runtime {

using Lock = std::lock_guard<std::recursive_mutex>;

std::string Problem() { return {}; }
int NumGpus() { return kGpus; }

GpuProperties Properties(int id) {
  const Lock lock(Mutex());
  GpuProperties properties;
  properties.name = "emulated GPU (the host computes; for tests)";
  properties.major = 8 + id;  // all GPUs differ
  properties.multiprocessors = 1;
  properties.total_memory = MemoryOf(id).total();
  properties.free_memory = MemoryOf(id).free();
  return properties;
}

std::vector<std::string> Report() { return {"emulated: the host computes, for tests"}; }

void Use(int id) { t_used = id; }

void* Malloc(size_t bytes) {
  const Lock lock(Mutex());
  RefuseInCapture("Malloc");
  CheckAlive("Malloc");
  return MemoryOf(t_used).Take(bytes);
}

void Free(void* data) {
  const Lock lock(Mutex());
  RefuseInCapture("Free");
  for (CUstream_st* stream : Streams()) Run(*stream, stream->queued);  // cudaFree does so, too
  for (int id = 0; id < kGpus; ++id)
    if (MemoryOf(id).Give(data)) return;
  throw Error("Free: this is no device memory");
}

void* MallocPinned(size_t bytes) {
  RefuseInCapture("MallocPinned");
  void* data = std::aligned_alloc(kPage, (bytes + kPage - 1) / kPage * kPage);
  if (!data) throw Error("MallocPinned: out of memory");
  return data;
}

void FreePinned(void* data) {
  RefuseInCapture("FreePinned");
  std::free(data);
}

Stream NewStream() {
  const Lock lock(Mutex());
  return Streams().emplace_back(new CUstream_st);
}
void DeleteStream(Stream stream) {
  const Lock lock(Mutex());
  Run(*stream, stream->queued);
  std::erase(Streams(), stream);
  delete stream;
}

void Synchronize(Stream stream) {
  const Lock lock(Mutex());
  RefuseInCapture("Synchronize");
  Run(*stream, stream->queued);
  CheckAlive("Synchronize");
}

void CopyToDevice(void* device, const void* host, size_t bytes, Stream stream) {
  CopyWithin(device, host, bytes, stream);
}

void CopyToHost(void* host, const void* device, size_t bytes, Stream stream) {
  CopyWithin(host, device, bytes, stream);
}

void CopyWithin(void* to, const void* from, size_t bytes, Stream stream) {
  emulated::Enqueue(stream, [=] { std::memcpy(to, from, bytes); });
}

void Zero(void* data, size_t bytes, Stream stream) {
  emulated::Enqueue(stream, [=] { std::memset(data, 0, bytes); });
}

Event NewEvent() { return new CUevent_st; }
void DeleteEvent(Event event) { delete event; }

void Record(Event event, Stream stream) {
  RefuseInCapture("Record");  // as Reached, without the lock
  event->stream = stream;
  event->position = stream->queued;
}

bool Reached(Event event) {
  RefuseInCapture("Reached");
  // Work that waits for other processes holds the lock, but a GPU would answer.
  if (const std::unique_lock<std::recursive_mutex> lock(Mutex(), std::try_to_lock);
      lock.owns_lock())
    CheckAlive("Reached");
  // Another thread may ask while work runs, which is not over then.
  return !event->stream || event->stream->ended >= event->position;
}

void Wait(Event event) {
  const Lock lock(Mutex());
  RefuseInCapture("Wait");
  if (event->stream) Run(*event->stream, event->position);
  CheckAlive("Wait");
}

void QueueWait(Event event, Stream stream) {
  const Lock lock(Mutex());
  if (stream->captured) RefuseInCapture("QueueWait");  // it would wait for work outside the capture
  if (!event->stream) return;
  Push(*stream, [other = event->stream, position = event->position] {
    const bool exists = std::count(Streams().begin(), Streams().end(), other) > 0;
    if (exists) Run(*other, position);  // a deleted stream has run all its work
  });
}

void CheckLaunches() {
  const Lock lock(Mutex());
  CheckAlive("launch");
}

void BeginCapture(Stream stream) {
  const Lock lock(Mutex());
  RefuseInCapture("BeginCapture");
  CheckAlive("BeginCapture");
  stream->captured = std::make_unique<Work>();
  t_capture = stream;
}

CapturedGraph EndCapture(Stream stream) {
  const Lock lock(Mutex());
  if (t_capture != stream) throw Error("EndCapture: this thread does not capture that stream");
  t_capture = nullptr;
  const std::shared_ptr<const Work> work = std::move(stream->captured);
  if (!t_spoiled.empty())
    throw Error("EndCapture: the capture has failed at " + std::exchange(t_spoiled, {}));
  return new CUgraphExec_st{work};
}

std::vector<CapturedLaunch> CapturesAfter(Stream stream) {
  const Lock lock(Mutex());
  if (!stream->captured) throw Error("CapturesAfter: the stream is not captured");
  if (!t_spoiled.empty()) throw Error("CapturesAfter: the capture has failed at " + t_spoiled);
  return stream->captured->after;
}

void SetCapturesAfter(Stream stream, const std::vector<CapturedLaunch>& launches) {
  const Lock lock(Mutex());
  if (!stream->captured) throw Error("SetCapturesAfter: the stream is not captured");
  for (const CapturedLaunch launch : launches)
    if (std::none_of(stream->captured->nodes.begin(), stream->captured->nodes.end(),
                     [&](const CUgraphNode_st& node) { return &node == launch; }))
      throw Error("SetCapturesAfter: this was not captured here");
  stream->captured->after = launches;
}

void DeleteGraph(CapturedGraph graph) {
  RefuseInCapture("DeleteGraph");
  delete graph;
}

void LaunchGraph(CapturedGraph graph, Stream stream) {
  const Lock lock(Mutex());
  CheckAlive("LaunchGraph");
  emulated::Enqueue(stream, [work = graph->work] {
    for (size_t n : OrderOf(*work)) work->nodes[n].work();
  });
  if (graph->work->shared) SharedWorker::Wake(*stream);
}

}  // namespace runtime
}  // namespace singa::cuda
