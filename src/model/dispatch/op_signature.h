#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <type_traits>

#include "singa/core/layout.h"
#include "singa/core/shape.h"

namespace singa {

/// Key of a plan: everything that changes what a backend compiles. Its size is fixed, so building
/// one allocates nothing. It is hashed while it is written, and compared in full.
class OpSignature {
 public:
  static constexpr int kMaxWords = 128;
  static constexpr int kMaxLayouts = 10;

  explicit OpSignature(const char* op);

  const char* op() const { return op_; }
  uint64_t hash() const { return hash_; }
  bool operator==(const OpSignature& other) const;

  /// `name` is for messages only. It has to be a literal.
  void Add(const char* name, uint64_t word);
  void Add(const char* name, const LayoutPtr& layout);

  /// Name of the first field in which two signatures of one operation differ.
  const char* FirstDifference(const OpSignature& other) const;

  // The visitor protocol of a Spec (op_type.h): one call per field.
  template <class T>
  void operator()(const char* name, const T& value) {
    if constexpr (std::is_same_v<T, LayoutPtr>) {
      Add(name, value);
    } else if constexpr (std::is_same_v<T, Shape>) {
      Add(name, static_cast<uint64_t>(value.rank()));
      for (int64_t dim : value) Add(name, static_cast<uint64_t>(dim));
    } else if constexpr (requires { T::VisitFields(value, *this); }) {
      T::VisitFields(value, *this);
    } else if constexpr (std::is_floating_point_v<T>) {
      Add(name, std::bit_cast<uint64_t>(static_cast<double>(value)));
    } else {
      static_assert(std::is_enum_v<T> || std::is_integral_v<T>,
                    "a Spec's field must be a number, Shape, layout, or a struct of fields");
      Add(name, static_cast<uint64_t>(value));
    }
  }

 private:
  const char* op_;
  uint64_t hash_;
  int words_ = 0;
  int layouts_ = 0;
  std::array<uint64_t, kMaxWords> word_;     // only the first words_ are set
  std::array<const char*, kMaxWords> name_;  // likewise
  std::array<LayoutPtr, kMaxLayouts> layout_;
};

}  // namespace singa
