#include "model/dispatch/spot/sampler.h"

#include <array>
#include <cmath>
#include <limits>
#include <memory>
#include <numeric>
#include <sstream>
#include <stdexcept>
#include <utility>

#include "core/device/parallel.h"
#include "core/layout/blocked_layout.h"
#include "core/tensor/dtype_switch.h"
#include "model/dispatch/kernel.h"
#include "model/dispatch/opcheck/difference.h"
#include "model/dispatch/spot/read_elements.h"
#include "singa/core/device.h"
#include "singa/core/error.h"

namespace singa::spot {
namespace {

constexpr int64_t kMain = 4;  ///< elements of an output that are checked where sums are short
constexpr int64_t kMost = 32;
constexpr int64_t kShort = 4096;  ///< products of these elements
constexpr int64_t kChunk = 256;   ///< elements that are converted at once

int64_t PositionOf(const Steps& steps, int64_t i) {
  return steps.base + (steps.table ? steps.table[i * steps.stride] : i * steps.stride);
}

template <class T>
void LoadSteps(const T* data, const Steps& steps, int64_t count, double* values) {
  data += steps.base;
  if (steps.table) {
    for (int64_t i = 0; i < count; ++i)
      values[i] = Convert<double>(data[steps.table[i * steps.stride]]);
  } else {
    LoadStrided(data, steps.stride, count, values);
  }
}

/// The position of the layout's element with coordinate `x` along its axis `axis`, and 0 along the
/// others.
int64_t PositionAlong(const Placement& placement, int axis, int64_t x) {
  int64_t position = 0, inner = 1;
  for (size_t i = placement.blocks.size(); i-- > 0;) {
    const Placement::Block& block = placement.blocks[i];
    if (block.axis == axis) {
      position += x % block.size * inner;
      x /= block.size;
    }
    inner *= block.size;
  }
  return position + x * placement.strides[axis];
}

/// Positions of a tensor's elements along one of its axes, which may be several of the layout's.
std::vector<int64_t> TableOf(const BlockedLayout& layout, int64_t length, int64_t row_major) {
  const Placement &there = layout.placement(), &plain = layout.plain();
  std::vector<int64_t> table(static_cast<size_t>(length));
  for (int64_t c = 0; c < length; ++c) {
    int64_t& position = table[static_cast<size_t>(c)];
    const int64_t flat = c * row_major;
    for (int j = 0; j < there.dims.rank(); ++j)
      if (there.dims[j] > 1)
        position += PositionAlong(there, j, flat / plain.strides[j] % there.dims[j]);
  }
  return table;
}

/// The distance between elements along an axis of the tensor that is one of the layout's, and is
/// not split into blocks. Nothing for other axes.
std::optional<int64_t> StrideOf(const BlockedLayout& layout, int64_t length, int64_t row_major) {
  const Placement &there = layout.placement(), &plain = layout.plain();
  for (int j = 0; j < there.dims.rank(); ++j) {
    if (there.dims[j] != length || plain.strides[j] != row_major) continue;
    const bool is_split =
        std::any_of(there.blocks.begin(), there.blocks.end(),
                    [&](const Placement::Block& block) { return block.axis == j; });
    if (!is_split) return there.strides[j];
  }
  return std::nullopt;
}

struct Products {
  double sum = 0, magnitude = 0;
};

/// In lanes, so that the loop vectorises.
template <class T>
SINGA_MULTI_ISA Products ProductsOf(const T* a, int64_t a_stride, const T* b, int64_t b_stride,
                                    int64_t count) {
  constexpr int64_t kLanes = 8;
  double sums[kLanes] = {}, magnitudes[kLanes] = {};
  const auto add = [&](int64_t i, int64_t lane) {
    const double product = Convert<double>(a[i * a_stride]) * Convert<double>(b[i * b_stride]);
    sums[lane] += product;
    magnitudes[lane] += std::abs(product);
  };
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes)
    for (int64_t lane = 0; lane < kLanes; ++lane) add(i + lane, lane);
  for (; i < count; ++i) add(i, 0);
  Products all;
  for (int64_t lane = 0; lane < kLanes; ++lane) {
    all.sum += sums[lane];
    all.magnitude += magnitudes[lane];
  }
  return all;
}

int64_t RowMajorPosition(const Shape& index, const Shape& shape) {
  int64_t position = 0;
  for (int i = 0; i < shape.rank(); ++i) position = position * shape[i] + index[i];
  return position;
}

uint64_t Mix(uint64_t x) {  // splitmix64
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

/// values[i] = the element at positions[i] of the tensor's memory, wherever that is.
void ReadElements(const Tensor& t, std::span<const int64_t> positions, double* values) {
  if (positions.empty()) return;
  if (t.device()->kind() == DeviceKind::kCpu)
    return SwitchAll(t.data_type(), "spot check", [&]<class T>() {
      for (const int64_t position : positions)
        *values++ = Convert<double>(static_cast<const T*>(t.raw_data())[position]);
    });
  const DevicePtr device = t.device();
  const auto count = static_cast<int64_t>(positions.size());
  const auto memory = std::make_shared<Block>(device, t.raw_data(), t.block()->size(), [] {});
  const Tensor where({count}, device, kInt64), found({count}, device, kFloat64);
  device->CopyFromHost(where.raw_data(), positions.data(), positions.size_bytes());
  const Kernel* kernel = FindKernel<ReadElementsSpec>("cuda", device->kind());
  Check<std::logic_error>(kernel, "spot check", "no kernel reads elements on ", device->name());
  const Tensor inputs[] = {Tensor(memory, {1}, {1}, 0, t.data_type()), where};
  const Scalars scalars;
  kernel->Make(OpRef(ReadElementsSpec{t.data_type()}))
      .plan()
      ->Run({*device, inputs, {&found, 1}, scalars, nullptr});
  device->CopyToHost(values, found.raw_data(), static_cast<size_t>(found.bytes()));
}

/// The largest magnitude, or infinity where an element is NaN or infinite.
double LargestOf(const Tensor& t) {
  double largest = 0;
  if (t.empty() || !IsFloat(t.data_type())) return largest;
  if (t.device()->kind() != DeviceKind::kCpu) return LargestOf(t.Plain().ToDevice(DefaultDevice()));
  SwitchFloat(t.data_type(), "spot check", [&]<class T>() {
    const auto scan = [&](const T* data, int64_t stride, int64_t count) {
      for (int64_t i = 0; i < count; ++i) {
        const double value = std::abs(Convert<double>(data[i * stride]));
        largest = std::isfinite(value) ? std::max(largest, value)
                                       : std::numeric_limits<double>::infinity();
        if (!std::isfinite(largest)) return;
      }
    };
    // The padding of a layout is zero.
    if (const LayoutPtr& layout = t.layout())
      scan(static_cast<const T*>(t.raw_data()), 1,
           static_cast<int64_t>(layout->bytes() / sizeof(T)));
    else
      scan(static_cast<const T*>(t.Contiguous().raw_data()), 1, t.size());
  });
  return largest;
}

}  // namespace

Operand::Operand(const Tensor& t) : tensor_(t) {
  const BlockedLayout* blocked = AsBlocked(t.layout());
  const auto strides = t.layout() && !blocked ? t.layout()->strides() : std::nullopt;
  if (t.layout() && !blocked && !strides) tensor_ = t.Plain();
  axes_.resize(static_cast<size_t>(t.rank()));
  int64_t row_major = 1;
  for (int i = t.rank() - 1; i >= 0; --i) {
    Axis& axis = axes_[static_cast<size_t>(i)];
    if (!blocked)
      axis.stride = strides ? (*strides)[i] : tensor_.strides()[i];
    else if (const auto stride = StrideOf(*blocked, t.shape(i), row_major))
      axis.stride = *stride;
    else
      axis.table = TableOf(*blocked, t.shape(i), row_major);
    row_major *= t.shape(i);
  }
}

Sampler::Sampler(std::span<const Tensor> inputs, std::span<const Tensor> outputs, int64_t products,
                 uint32_t turn, uint64_t seed, const Plan& plan)
    : outputs_(outputs),
      products_(products),
      turn_(turn),
      seed_(seed),
      spreads_error_(plan.spreads_error()),
      factor_error_(plan.factor_error()) {
  for (const Tensor& t : inputs) {
    inputs_.push_back(t.empty() ? Operand() : Operand(t));
    on_host_ &= t.empty() || t.device()->kind() == DeviceKind::kCpu;
  }
}

void RemoteElements::List(const Steps& steps, int64_t count) {
  listed_.push_back({steps, count});
  for (int64_t i = 0; i < count; ++i) positions_.push_back(PositionOf(steps, i));
}

void RemoteElements::Read(const Tensor& t) {
  values_.resize(positions_.size());
  ReadElements(t, positions_, values_.data());
}

bool RemoteElements::Next(const Steps& steps, int64_t count, double* values) {
  if (next_ == listed_.size() || listed_[next_].steps != steps || listed_[next_].count != count)
    return false;
  std::copy_n(values_.begin() + static_cast<std::ptrdiff_t>(given_), count, values);
  ++next_;
  given_ += static_cast<size_t>(count);
  return true;
}

void Sampler::ReadListed() {
  for (size_t i = 0; i < inputs_.size(); ++i)
    if (!inputs_[i].tensor().empty()) elements_[i].Read(inputs_[i].tensor());
}

std::vector<Place> Sampler::Places(const Shape& shape, int64_t terms) {
  const int64_t least = std::clamp<int64_t>(kShort / std::max<int64_t>(1, terms), 1, kMain);
  const int64_t affordable = products_ / std::max<int64_t>(1, terms);
  const auto count =
      static_cast<size_t>(std::min(shape.Count(), std::clamp<int64_t>(affordable, least, kMost)));
  const size_t listed = std::max<size_t>(count, kMain);
  std::vector<Place> places;
  const auto add = [&](Shape index) {
    if (places.size() < listed) places.push_back({std::move(index)});
  };
  uint64_t state = seed_;
  const auto random = [&] {
    Shape index = shape;
    for (int i = 0; i < shape.rank(); ++i) {
      state = Mix(state);
      index[i] = static_cast<int64_t>(state % static_cast<uint64_t>(shape[i]));
    }
    return index;
  };
  if (shape.Count() <= static_cast<int64_t>(count)) {  // all
    for (int64_t at = 0; at < shape.Count(); ++at) {
      Shape index = shape;
      int64_t left = at;
      for (int i = shape.rank() - 1; i >= 0; left /= shape[i--]) index[i] = left % shape[i];
      add(index);
    }
    return places;
  }
  Shape first = shape, last = shape;
  for (int i = 0; i < shape.rank(); ++i) first[i] = 0, last[i] = shape[i] - 1;
  add(last);
  add(random());
  add(first);
  for (const int64_t width : {16, 32}) {  // the last block of channels that is not full
    const int axis = shape.rank() > 1 ? 1 : 0;
    const int64_t begin = shape[axis] / width * width;
    if (begin == shape[axis]) continue;
    Shape index = random();
    index[axis] = begin + index[axis] % (shape[axis] - begin);
    add(index);
  }
  for (int i = 0; i < shape.rank(); ++i) {
    if (shape[i] == 1) continue;
    for (const int64_t edge : {shape[i] - 1, int64_t{0}}) {
      Shape index = random();
      index[i] = edge;
      add(index);
    }
  }
  while (places.size() < listed) add(random());
  // Four checks of one element each come to all of the first four.
  if (count < listed)
    std::rotate(places.begin(), places.begin() + static_cast<int>(turn_ * count % kMain),
                places.end());
  places.resize(count);
  return places;
}

void Sampler::Load(const Steps& steps, int64_t count, double* values) const {
  const Tensor& t = inputs_[steps.input].tensor();
  if (!on_host_) {
    RemoteElements& elements = elements_[steps.input];
    if (remote_ == Remote::kList) {
      elements.List(steps, count);
      std::fill_n(values, count, 0.0);
    } else if (remote_ != Remote::kGive || !elements.Next(steps, count, values)) {
      RemoteElements these;
      these.List(steps, count);
      these.Read(t);
      these.Next(steps, count, values);
    }
    return;
  }
  SwitchAll(t.data_type(), "spot check", [&]<class T>() {
    LoadSteps(static_cast<const T*>(t.raw_data()), steps, count, values);
  });
}

void Sampler::AddProducts(const Steps& a, const Steps& b, int64_t count, Place* place) const {
  const auto add = [&](const Products& products) {
    place->value += products.sum;
    place->magnitude += products.magnitude;
  };
  const Tensor &left = inputs_[a.input].tensor(), &right = inputs_[b.input].tensor();
  if (on_host_ && !a.table && !b.table && left.data_type() == right.data_type() &&
      IsFloat(left.data_type())) {
    SwitchFloat(left.data_type(), "spot check", [&]<class T>() {
      add(ProductsOf(static_cast<const T*>(left.raw_data()) + a.base, a.stride,
                     static_cast<const T*>(right.raw_data()) + b.base, b.stride, count));
    });
    return;
  }
  std::array<double, kChunk> of_a, of_b;
  for (int64_t begin = 0; begin < count; begin += kChunk) {
    const int64_t n = std::min(kChunk, count - begin);
    Load(a.From(begin), n, of_a.data());
    Load(b.From(begin), n, of_b.data());
    add(ProductsOf(of_a.data(), 1, of_b.data(), 1, n));
  }
}

void Sampler::AddTerms(const Steps& steps, int64_t count, double factor, Place* place) const {
  const auto add = [&](Products terms) {
    place->value += factor * terms.sum;
    place->magnitude += std::abs(factor) * terms.magnitude;
  };
  const Tensor& t = inputs_[steps.input].tensor();
  if (on_host_ && !steps.table && IsFloat(t.data_type())) {
    SwitchFloat(t.data_type(), "spot check", [&]<class T>() {
      const T one = Convert<T>(1.0);
      add(ProductsOf(static_cast<const T*>(t.raw_data()) + steps.base, steps.stride, &one, 0,
                     count));
    });
    return;
  }
  const double one = 1;
  std::array<double, kChunk> values;
  for (int64_t begin = 0; begin < count; begin += kChunk) {
    const int64_t n = std::min(kChunk, count - begin);
    Load(steps.From(begin), n, values.data());
    add(ProductsOf(values.data(), 1, &one, 0, n));
  }
}

bool Sampler::HasUnboundedInput() {
  if (!unbounded_) {
    unbounded_ = false;
    for (const Operand& input : inputs_)
      if (!std::isfinite(LargestOf(input.tensor()))) unbounded_ = true;
  }
  return *unbounded_;
}

double Sampler::SpreadBound(int64_t terms) {
  if (!largest_product_) {
    largest_product_ = 1;
    for (const Operand& input : inputs_)
      *largest_product_ *= std::max(1.0, LargestOf(input.tensor()));
  }
  return static_cast<double>(terms) * *largest_product_;
}

void Sampler::Compare(size_t output, const char* name, const Shape& shape,
                      std::span<const Place> places, int64_t terms, const How& how) {
  const Tensor& t = outputs_[output];
  const Operand there(t);
  const DType dtype = t.data_type();
  const opcheck::Tolerance tolerance(dtype, terms, true, factor_error_);
  // A sum that may overflow on its way is not compared.
  const double most = dtype == kFloat64 ? std::numeric_limits<double>::max()
                                        : double{std::numeric_limits<float>::max()} / 4;
  const double underflow = dtype == kFloat64 ? 0 : static_cast<double>(terms) * 1e-30;
  std::vector<int64_t> positions;
  for (const Place& place : places)
    positions.push_back(how.flat ? RowMajorPosition(place.index, shape) : there.At(place.index));
  std::vector<double> results(places.size());
  ReadElements(there.tensor(), positions, results.data());
  for (size_t i = 0; i < places.size(); ++i) {
    const Place& place = places[i];
    const double got = results[i];
    if (!std::isfinite(place.magnitude) || place.magnitude > most) continue;
    if (dtype == kFloat16 && std::abs(place.value) > 0x1p15) continue;
    // A sum without terms, or of zeros, is 0, which says little about the kernel. So do numbers
    // whose products may underflow.
    const bool counts = place.magnitude > 100 * underflow || how.exact;
    finding_.counted += counts;
    const auto allowed_for = [&](double magnitude) {
      if (how.exact) return 0.0;
      if (IsInteger(dtype)) return how.rounding;
      return tolerance.For(magnitude, place.value) + (magnitude == 0 ? 0 : underflow);
    };
    const double distance = std::abs(got - place.value);
    double factor = spreads_error_ ? opcheck::kSpreadFactor : 1;
    double allowed = allowed_for(factor * place.magnitude);
    if (distance <= allowed) continue;
    // Where an operand is infinite or NaN, implementations spread that over their tiles.
    if (!std::isfinite(got) && HasUnboundedInput()) {
      finding_.counted -= counts;
      continue;
    }
    if (spreads_error_ && std::isfinite(got)) {
      allowed = allowed_for(factor * SpreadBound(terms));
      if (distance <= allowed) continue;
    }
    const double ratio = std::isfinite(distance) && allowed > 0
                             ? distance / allowed
                             : std::numeric_limits<double>::infinity();
    if (ratio <= finding_.ratio) continue;
    finding_.ratio = ratio;
    std::ostringstream text;
    text.precision(9);
    text << "output " << name << " at " << place.index << " of " << shape << ": " << got
         << ", a plain sum gives " << place.value << ", allowed difference " << allowed;
    finding_.text = text.str();
  }
}

}  // namespace singa::spot
