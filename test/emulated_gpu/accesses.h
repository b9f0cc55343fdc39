#pragma once

// Finds faults in the memory accesses of emulated kernels, which the compiler reports (hooks.cc):
// misaligned accesses, which a GPU refuses, and races.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <unordered_map>

namespace singa::cuda::emulated {

/// The time and thread of an access. Two threads are ordered if they belong to one block and there
/// is a barrier of the block, or of their common warp, between.
struct Moment {
  uint32_t launch = 0;  ///< 0: before all launches
  uint32_t block = 0;
  uint16_t thread = 0;         ///< in the block
  uint16_t barriers = 0;       ///< of the block, so far
  uint16_t warp_barriers = 0;  ///< of the warp, so far
};

enum class AccessKind : uint8_t { kRead, kWrite, kAtomic };

/// Finds pairs of unordered accesses to the same byte in a kernel, of which one is a write. For
/// each byte it records the last write, and as much about the reads since then as later accesses
/// need.
class Races {
 public:
  /// Whether the access is ordered after all earlier ones; if not, `other` is one of those.
  bool Note(AccessKind kind, const void* data, size_t bytes, const Moment& now, Moment* other);
  /// Forgets all accesses to memory that was reallocated.
  void Forget(const void* data, size_t bytes);

 private:
  struct Access {
    Moment moment = {};
    bool atomic = false;                                ///< for writes
    bool lanes = false, warps = false, blocks = false;  ///< several have read; `moment` is one
  };
  struct Byte {
    Access write, read;
  };
  static constexpr size_t kPage = 4096;

  static bool Read(Byte& byte, const Moment& now, Moment* other);
  static bool Write(Byte& byte, const Moment& now, bool atomic, Moment* other);
  Byte* PageOf(uintptr_t address);
  /// Calls f(byte) for each byte, until one returns false.
  template <class F>
  bool ForBytes(const void* data, size_t bytes, const F& f);

  std::unordered_map<uintptr_t, std::unique_ptr<Byte[]>> pages_;
  uintptr_t last_page_ = 0;  ///< number of the page in last_
  Byte* last_ = nullptr;
};

}  // namespace singa::cuda::emulated
