#pragma once

// What the threads of an emulated kernel do with memory, as the compiler tells it (hooks.cc): an
// access of n bytes at an address that is no multiple of n, which a GPU refuses, and races.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <unordered_map>

namespace singa::cuda::emulated {

/// Who accesses memory, and when: two threads are in order where they belong to one block, and a
/// barrier of the block, or of their warp, lies between.
struct Moment {
  uint32_t launch = 0;  ///< 0 is before all launches
  uint32_t block = 0;
  uint16_t thread = 0;         ///< in its block
  uint16_t barriers = 0;       ///< of the block, so far
  uint16_t warp_barriers = 0;  ///< likewise
};

enum class AccessKind : uint8_t { kRead, kWrite, kAtomic };

/// Finds two threads of a kernel that use the same byte in no certain order, where one of them
/// writes. For each byte it remembers who wrote last, and who has read since then, as far as that
/// decides about the next access.
class Races {
 public:
  /// Whether the access is in order with those before; `other` is what it is not in order with.
  bool Note(AccessKind kind, const void* data, size_t bytes, const Moment& now, Moment* other);
  /// Memory that is another one from now on.
  void Forget(const void* data, size_t bytes);

 private:
  struct Access {
    Moment moment = {};
    bool atomic = false;                                ///< a write
    bool lanes = false, warps = false, blocks = false;  ///< reads of several, `moment` is one
  };
  struct Byte {
    Access write, read;
  };
  static constexpr size_t kPage = 4096;

  static bool Read(Byte& byte, const Moment& now, Moment* other);
  static bool Write(Byte& byte, const Moment& now, bool atomic, Moment* other);
  Byte* PageOf(uintptr_t address);
  /// f(byte) for each, until one says no.
  template <class F>
  bool ForBytes(const void* data, size_t bytes, const F& f);

  std::unordered_map<uintptr_t, std::unique_ptr<Byte[]>> pages_;
  uintptr_t last_page_ = 0;  ///< the number of the page that was used last
  Byte* last_ = nullptr;
};

}  // namespace singa::cuda::emulated
