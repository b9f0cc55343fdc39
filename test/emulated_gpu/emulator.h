#pragma once

// CUDA's execution model on the host: each thread of a block is a fiber, which runs until it waits
// for others. Launch throws std::logic_error for an error in a kernel: an index outside a shared
// array, a misaligned access, a barrier that some thread of the block (or lane of the warp) does
// not reach, a barrier in a kernel that was launched as independent. A missing barrier shows as a
// result that depends on the order of the threads (SetOrder), and as a race (Watch).

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <tuple>
#include <type_traits>

#include "backend/cuda/runtime/runtime.h"
#include "emulated_gpu/accesses.h"

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define SINGA_CALLED
#define SINGA_CONSTANT(...) const __VA_ARGS__&
#define SINGA_SHARED(T, count, name) \
  static const char name##_key = 0;  \
  const ::singa::cuda::emulated::SharedArray<T> name(&name##_key, (count))

struct dim3 {
  constexpr dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
  unsigned x, y, z;
};

struct alignas(16) uint4 {
  unsigned x, y, z, w;
};

namespace singa::cuda {

namespace emulated {

/// The order in which threads of a block, and blocks of a grid, run. Results of a correct kernel do
/// not depend on it. The environment variable SINGA_CUDA_EMULATED_THREADS (forward, reversed,
/// shuffled) sets the initial order; the default is forward.
enum class Order { kForward, kReversed, kShuffled };
void SetOrder(Order order);

/// Whether races are errors: unordered accesses to the same memory, of which one is a write.
/// Checking takes 32 times the memory that kernels use, and several times as long. With
/// SINGA_CUDA_EMULATED_RACES=1, the first allocation on a device turns it on. Returns false if this
/// build cannot check: it needs GCC, and kernels compiled without sanitizers.
bool Watch(bool races);
extern std::atomic<bool> watching;

// Called before each access by a thread of a kernel.
void NoteRange(AccessKind kind, const void* data, size_t bytes);
void FailMisaligned(const void* data, size_t bytes);
/// An access of kBytes. 16 bytes need an alignment of 16, because the GPU moves them at once.
template <size_t kBytes>
void NoteAccess(AccessKind kind, const void* data) {
  if (reinterpret_cast<uintptr_t>(data) % kBytes != 0) [[unlikely]]
    FailMisaligned(data, kBytes);
  if (watching.load(std::memory_order_relaxed)) [[unlikely]]
    NoteRange(kind, data, kBytes);
}

/// The indices of the running thread.
struct Position {
  dim3 thread, block, block_size, grid_size;
};
Position& Here();

// Barriers, and the exchanges at them.
void BlockBarrier();
void WarpBarrier(unsigned mask);
/// Passes `bits` to the warp. Returns the bits of `lane`, or the thread's own if there is no such
/// lane.
uint64_t Exchange(unsigned mask, uint64_t bits, unsigned lane);
unsigned Ballot(unsigned mask, bool vote);
unsigned LaneOf();

/// Memory of this block for `key`, shared by its threads. It is filled with NaN when the block
/// first uses it.
void* SharedMemory(const void* key, size_t bytes);
/// Reports an error and ends the kernel. Does not return.
[[noreturn]] void Fail(const char* what);

/// Queues body() for all threads of all blocks. Runs it at once if `stream` is null.
void Run(Stream stream, dim3 grid, dim3 block, bool independent, std::function<void()> body);

template <class T>
class SharedArray {
 public:
  SharedArray(const void* key, size_t count)
      : data_(static_cast<T*>(SharedMemory(key, count * sizeof(T)))), count_(count) {}
  T& operator[](size_t i) const {
    if (i >= count_) Fail("an index is outside its array in shared memory");
    return data_[i];
  }

 private:
  T* data_;
  size_t count_;
};

template <class T>
T ExchangeValue(unsigned mask, T value, unsigned lane) {
  static_assert(sizeof(T) <= sizeof(uint64_t) && std::is_trivially_copyable_v<T>);
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(T));
  bits = Exchange(mask, bits, lane);
  std::memcpy(&value, &bits, sizeof(T));
  return value;
}

template <class... Parameters, class... Arguments>
void RunKernel(bool independent, void (*kernel)(Parameters...), dim3 grid, dim3 block,
               Stream stream, const Arguments&... arguments) {
  std::tuple<std::remove_cvref_t<Parameters>...> values{static_cast<Parameters>(arguments)...};
  Run(stream, grid, block, independent, [kernel, values] { std::apply(kernel, values); });
}

}  // namespace emulated

template <class... Parameters, class... Arguments>
void Launch(void (*kernel)(Parameters...), dim3 grid, dim3 block, Stream stream,
            const Arguments&... arguments) {
  emulated::RunKernel(false, kernel, grid, block, stream, arguments...);
}

template <class... Parameters, class... Arguments>
void LaunchIndependent(void (*kernel)(Parameters...), dim3 grid, dim3 block, Stream stream,
                       const Arguments&... arguments) {
  emulated::RunKernel(true, kernel, grid, block, stream, arguments...);
}

}  // namespace singa::cuda

#define threadIdx (::singa::cuda::emulated::Here().thread)
#define blockIdx (::singa::cuda::emulated::Here().block)
#define blockDim (::singa::cuda::emulated::Here().block_size)
#define gridDim (::singa::cuda::emulated::Here().grid_size)

inline void __syncthreads() { ::singa::cuda::emulated::BlockBarrier(); }
inline void __syncwarp(unsigned mask = 0xffffffffu) { ::singa::cuda::emulated::WarpBarrier(mask); }
inline unsigned __ballot_sync(unsigned mask, bool vote) {
  return ::singa::cuda::emulated::Ballot(mask, vote);
}
template <class T>
T __shfl_sync(unsigned mask, T value, int lane) {
  return ::singa::cuda::emulated::ExchangeValue(mask, value, static_cast<unsigned>(lane) % 32);
}
template <class T>
T __shfl_xor_sync(unsigned mask, T value, int bits) {
  return ::singa::cuda::emulated::ExchangeValue(
      mask, value, ::singa::cuda::emulated::LaneOf() ^ static_cast<unsigned>(bits));
}
template <class T>
T __shfl_down_sync(unsigned mask, T value, unsigned distance) {
  return ::singa::cuda::emulated::ExchangeValue(mask, value,
                                                ::singa::cuda::emulated::LaneOf() + distance);
}
template <class T>
T __shfl_up_sync(unsigned mask, T value, unsigned distance) {
  return ::singa::cuda::emulated::ExchangeValue(mask, value,
                                                ::singa::cuda::emulated::LaneOf() - distance);
}
inline void __threadfence_system() {}
inline int __popc(unsigned bits) { return __builtin_popcount(bits); }
inline uint32_t __umulhi(uint32_t a, uint32_t b) {
  return static_cast<uint32_t>(uint64_t{a} * b >> 32);
}

// Atomic, because threads switch at barriers only. Not instrumented, since they report their
// accesses themselves.
#define SINGA_ATOMIC \
  template <class T> \
  __attribute__((no_sanitize("thread"), noinline))

SINGA_ATOMIC T atomicAdd(T* address, T value) {
  using namespace singa::cuda::emulated;
  NoteAccess<sizeof(T)>(AccessKind::kAtomic, address);
  const T before = *address;
  *address += value;
  return before;
}
SINGA_ATOMIC T atomicMax(T* address, T value) {
  using namespace singa::cuda::emulated;
  NoteAccess<sizeof(T)>(AccessKind::kAtomic, address);
  const T before = *address;
  if (value > before) *address = value;
  return before;
}
SINGA_ATOMIC T atomicCAS(T* address, T expected, T value) {
  using namespace singa::cuda::emulated;
  NoteAccess<sizeof(T)>(AccessKind::kAtomic, address);
  const T before = *address;
  if (before == expected) *address = value;
  return before;
}

namespace singa::cuda {

/// Checks alignment here, because host compilers may split the access into smaller, aligned ones.
template <class V, class T>
V* VectorAt(T* address) {
  if (reinterpret_cast<uintptr_t>(address) % sizeof(V) != 0) [[unlikely]]
    emulated::FailMisaligned(address, sizeof(V));
  return reinterpret_cast<V*>(address);
}

SINGA_ATOMIC void StoreSame(T* address, T value) {
  emulated::NoteAccess<sizeof(T)>(emulated::AccessKind::kAtomic, address);
  *address = value;
}

}  // namespace singa::cuda
#undef SINGA_ATOMIC
