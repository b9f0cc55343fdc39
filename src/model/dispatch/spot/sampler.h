#pragma once

// Computes sampled elements of a call's results again, from its operands where they lie, by plain
// sums in float64.
//
// A Spec that can be sampled has
//
//   void Sample(spot::Sampler& sampler) const;
//
// which calls Sampler::Check for its outputs.

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/device/parallel.h"
#include "singa/core/plan.h"
#include "singa/core/tensor.h"

namespace singa::spot {

/// Positions of elements in memory: element i is at `base + table[i · stride]`, or at `base + i ·
/// stride` where there is no table.
struct Steps {
  size_t input = 0;
  int64_t base = 0;
  const int64_t* table = nullptr;
  int64_t stride = 1;

  bool operator==(const Steps&) const = default;
  /// From element `first` on.
  Steps From(int64_t first) const {
    if (table) return {input, base, table + first * stride, stride};
    return {input, base + first * stride, nullptr, stride};
  }
};

/// An argument whose elements are read where they lie. In all layouts the position of an element is
/// a sum of one number for each axis.
class Operand {
 public:
  Operand() = default;
  /// Copies the tensor to row-major order where positions in its layout are not known.
  explicit Operand(const Tensor& t);

  const Tensor& tensor() const { return tensor_; }
  const Shape& shape() const { return tensor_.shape(); }
  /// Adds to the position: the element's `coordinate` along an axis.
  int64_t At(int axis, int64_t coordinate) const {
    const Axis& a = axes_[static_cast<size_t>(axis)];
    return a.table.empty() ? coordinate * a.stride : a.table[static_cast<size_t>(coordinate)];
  }
  int64_t At(const Shape& index) const {
    int64_t at = 0;
    for (int i = 0; i < index.rank(); ++i) at += At(i, index[i]);
    return at;
  }
  /// Elements along an axis from coordinate `first` on, `stride` apart. `base` is the sum of the
  /// numbers of the other axes.
  Steps Along(size_t input, int axis, int64_t base, int64_t first = 0, int64_t stride = 1) const {
    const Axis& a = axes_[static_cast<size_t>(axis)];
    if (a.table.empty()) return {input, base + first * a.stride, nullptr, a.stride * stride};
    return {input, base, a.table.data() + first, stride};
  }

 private:
  struct Axis {
    int64_t stride = 0;
    std::vector<int64_t> table;  ///< empty: position i is i · stride
  };
  Tensor tensor_;
  std::vector<Axis> axes_;
};

/// One element of a result.
struct Place {
  Shape index;
  double value = 0;      ///< what belongs there
  double magnitude = 0;  ///< sum of the magnitudes of the terms

  void Add(double term) {
    value += term;
    magnitude += term < 0 ? -term : term;
  }
  void Add(const Place& sum) {
    value += sum.value;
    magnitude += sum.magnitude;
  }
  void Scale(double factor) {
    value *= factor;
    magnitude *= factor < 0 ? -factor : factor;
  }
  /// What is negative is cut off. NaN stays.
  void Relu() { value = value < 0 ? 0 : value; }
};

/// Elements of an operand on a GPU, which are read together: they are listed, then read, then given
/// out in the order of the list.
class RemoteElements {
 public:
  void List(const Steps& steps, int64_t count);
  void Read(const Tensor& t);
  /// Whether these elements are the next ones in the list.
  bool Next(const Steps& steps, int64_t count, double* values);

 private:
  struct Listed {
    Steps steps;
    int64_t count;
  };
  std::vector<Listed> listed_;
  std::vector<int64_t> positions_;
  std::vector<double> values_;
  size_t next_ = 0, given_ = 0;
};

/// What was found.
struct Finding {
  int64_t counted = 0;    ///< samples that say something
  double ratio = 0;       ///< largest |difference| / tolerance
  std::string text = {};  ///< where that is, if it is above 1
};

class Sampler {
 public:
  /// `products` is how many products may be computed. At least 4 elements of each output are, or
  /// where their sums are long, one; `turn`, the number of checks before this one, chooses which.
  /// `seed` chooses the other places. `plan` says how exact it is.
  Sampler(std::span<const Tensor> inputs, std::span<const Tensor> outputs, int64_t products,
          uint32_t turn, uint64_t seed, const Plan& plan);

  const Operand& input(size_t i) const { return inputs_[i]; }
  /// Whether operands are on the host, where all threads may read them.
  bool on_host() const { return on_host_; }

  /// Says how an output is compared.
  struct How {
    /// The output is taken in row-major order, whatever its shape.
    bool flat = false;
    bool exact = false;   ///< no difference is allowed; zeros count
    double rounding = 0;  ///< of integers: the difference that rounding may make
    /// `add` takes one pass over memory for all places, and uses threads itself.
    bool together = false;
  };
  /// Samples an output of this shape, whose elements are sums of `terms` terms. `add(places)`
  /// computes what belongs to places of `shape`; it is called on all threads where there is much to
  /// add, and on a GPU twice, with zeros for all elements at first.
  template <class Add>
  void Check(size_t output, const char* name, const Shape& shape, int64_t terms, const How& how,
             const Add& add);
  template <class Add>
  void Check(size_t output, const char* name, const Shape& shape, int64_t terms, const Add& add) {
    Check(output, name, shape, terms, How(), add);
  }

  /// Elements as float64.
  void Load(const Steps& steps, int64_t count, double* values) const;
  double Value(size_t input, const Shape& index) const {
    double value;
    Load({input, inputs_[input].At(index)}, 1, &value);
    return value;
  }
  /// The first element, whatever the shape.
  double First(size_t input) const {
    double value;
    Load({input}, 1, &value);
    return value;
  }
  /// Adds the products of the elements of a and b, in the order of both.
  void AddProducts(const Steps& a, const Steps& b, int64_t count, Place* place) const;
  /// Adds the elements, times a factor.
  void AddTerms(const Steps& steps, int64_t count, double factor, Place* place) const;

  const Finding& finding() const { return finding_; }

 private:
  static constexpr int64_t kGrain = 4096;  ///< terms that are worth a thread

  std::vector<Place> Places(const Shape& shape, int64_t terms);
  void ReadListed();
  void Compare(size_t output, const char* name, const Shape& shape, std::span<const Place> places,
               int64_t terms, const How& how);
  bool HasUnboundedInput();
  double SpreadBound(int64_t terms);

  std::vector<Operand> inputs_;
  std::span<const Tensor> outputs_;
  int64_t products_;
  uint32_t turn_;
  uint64_t seed_;
  bool spreads_error_;
  double factor_error_;
  bool on_host_ = true;
  enum class Remote { kDirect, kList, kGive } remote_ = Remote::kDirect;
  mutable std::vector<RemoteElements> elements_;  ///< of the inputs
  std::optional<bool> unbounded_;
  std::optional<double> largest_product_;
  Finding finding_;
};

template <class Add>
void Sampler::Check(size_t output, const char* name, const Shape& shape, int64_t terms,
                    const How& how, const Add& add) {
  if (output >= outputs_.size() || outputs_[output].empty()) return;
  std::vector<Place> places = Places(shape, terms);
  if (!on_host_) {
    elements_.assign(inputs_.size(), {});
    std::vector<Place> listing = places;
    remote_ = Remote::kList;
    add(std::span<Place>(listing));
    ReadListed();
    remote_ = Remote::kGive;
    add(std::span<Place>(places));
    remote_ = Remote::kDirect;
    return Compare(output, name, shape, places, terms, how);
  }
  const auto size = static_cast<int64_t>(places.size());
  ParallelFor(size,
              how.together ? size : std::max<int64_t>(1, kGrain / std::max<int64_t>(1, terms)),
              [&](int64_t begin, int64_t end) {
                add(std::span<Place>(places).subspan(static_cast<size_t>(begin),
                                                     static_cast<size_t>(end - begin)));
              });
  Compare(output, name, shape, places, terms, how);
}

}  // namespace singa::spot
