#include <algorithm>
#include <cstddef>
#include <memory>
#include <stdexcept>

#include "core/layout/in_type.h"
#include "core/tensor/kept_copy.h"
#include "model/dispatch/dispatch.h"
#include "model/dispatch/tensor_check.h"

namespace singa {
namespace {

/// A view, or a dense copy where the elements of the last axis do not lie side by side.
Tensor DenseRows(const Tensor& t) {
  const Tensor plain = t.Plain();
  const int last = plain.rank() - 1;
  return plain.shape(last) <= 1 || plain.strides()[last] == 1 ? plain : plain.Contiguous();
}

/// A result (B, H, N, D) in memory of this order, or (B, N, H, D) where `like` lies so: heads that
/// were split off an axis can then be merged again by a view.
Tensor NewRowsLike(const Tensor& like, const Shape& shape) {
  const Strides& strides = like.strides();
  if (strides[1] >= strides[2]) return Tensor(shape, like.device(), like.data_type());
  return Tensor({shape[0], shape[2], shape[1], shape[3]}, like.device(), like.data_type())
      .Transpose({0, 2, 1, 3});
}

/// `*t`, which is empty, becomes the result of make(), without a move of its shape.
template <class Make>
void MakeAgain(Tensor* t, const Make& make) {
  std::destroy_at(t);
  try {
    new (t) Tensor(make());
  } catch (...) {
    new (t) Tensor();
    throw;
  }
}

/// The inputs of a plan. They are made in place, and nothing is allocated.
class Inputs {
 public:
  Inputs() = default;
  Inputs(const Inputs&) = delete;
  Inputs& operator=(const Inputs&) = delete;
  ~Inputs() { std::destroy_n(data(), size_); }

  template <class Make>
  void Add(const Make& make) {
    Check<std::logic_error>(size_ < kMost, "Call", "more than ", kMost, " inputs");
    new (data() + size_) Tensor(make());
    ++size_;
  }
  size_t size() const { return size_; }
  const Tensor& operator[](size_t i) const { return data()[i]; }
  std::span<const Tensor> span() const { return {data(), size_}; }

 private:
  static constexpr size_t kMost = 12;
  const Tensor* data() const { return reinterpret_cast<const Tensor*>(bytes_); }
  Tensor* data() { return reinterpret_cast<Tensor*>(bytes_); }

  alignas(Tensor) std::byte bytes_[kMost * sizeof(Tensor)];
  size_t size_ = 0;
};

/// The outputs of a call: `one`, or `all` where there may be several.
struct Outputs {
  Tensor* one;
  std::vector<Tensor>* all;

  Tensor& Next() const { return all ? all->emplace_back() : *one; }
  std::span<const Tensor> span() const {
    return all ? std::span<const Tensor>(*all) : std::span<const Tensor>(one, 1);
  }
};

/// Checks the inputs of a call, brings them into the plan's layouts, and allocates the outputs.
/// Without a plan, these are zeros.
class Placing final : public ArgumentVisitor {
 public:
  Placing(const char* op, const Plan* plan, const DevicePtr& device, const Shape* shape,
          std::span<const Passed> passed, const Outputs& outputs)
      : op_(op), plan_(plan), device_(device), shape_(shape), passed_(passed), outputs_(outputs) {}
  std::span<const Tensor> inputs() const { return inputs_.span(); }

  Shape ShapeOfInput(size_t i) const override {
    return i < passed_.size() ? passed_[i].t->shape() : Shape();
  }
  DType TypeOfInput(size_t i) const override {
    return i < passed_.size() ? passed_[i].t->data_type() : kFloat32;
  }

 private:
  void VisitInput(const char* name, const Shape& shape, DType dtype,
                  const ArgumentTraits& traits) override {
    Check<std::logic_error>(next_ < passed_.size(), op_, name, " was not passed");
    const Tensor& t = *passed_[next_++].t;
    if (traits.left_out) return;
    const bool given = traits.given && !(traits.optional && t.empty());
    if (given) CheckInput(name, t, shape, dtype, traits);
    if (plan_) inputs_.Add([&] { return given ? Placed(t, traits) : Tensor(); });
  }

  Tensor Placed(const Tensor& t, const ArgumentTraits& traits) const {
    if (traits.updated) return t;
    if (traits.dense_rows) return DenseRows(t);
    const LayoutPtr layout = plan_->input_layout(inputs_.size());
    if (traits.weight) return InKeptLayout(t, layout);
    return traits.strided ? InLayoutOrStrided(t, layout) : t.ToLayout(layout);
  }

  void CheckInput(const char* name, const Tensor& t, const Shape& shape, DType dtype,
                  const ArgumentTraits& traits) {
    CheckDeclared(op_, name, t, shape, dtype, traits);
    if (!first_) {
      first_ = &t;
      first_name_ = name;
    } else if (!traits.any_device) {
      CheckSameDevice(op_, name, t, first_name_, *first_);
    }
  }

  void VisitOutput(const char* name, const Shape& shape, DType dtype,
                   const ArgumentTraits& traits) override {
    const size_t i = num_outputs_++;
    Check<std::logic_error>(i == 0 || outputs_.all, op_, name, " is a second output");
    Tensor& output = outputs_.Next();
    if (!traits.given) return;
    const Shape& whole = traits.flat && shape_ ? *shape_ : shape;
    if (traits.flat)
      Check<std::logic_error>(whole.Count() == shape.Count(), op_, name, " has ", shape.Count(),
                              " elements, unlike the shape ", whole);
    MakeAgain(&output, [&] {
      if (!plan_) return Full(whole, 0, device_, dtype);
      if (traits.same_as >= 0) return Tensor(inputs_[static_cast<size_t>(traits.same_as)]);
      if (traits.rows_like >= 0)
        return NewRowsLike(inputs_[static_cast<size_t>(traits.rows_like)], shape);
      const size_t bytes = traits.saved ? plan_->private_bytes(i) : 0;
      if (bytes > 0 && !plan_->output_layout(i))
        return Tensor({static_cast<int64_t>(bytes)}, device_, kUInt8);
      return NewOutput(*plan_, i, whole, device_, dtype);
    });
  }

  const char* op_;
  const Plan* plan_;
  const DevicePtr& device_;
  const Shape* shape_;
  std::span<const Passed> passed_;
  const Outputs& outputs_;
  Inputs inputs_;
  const Tensor* first_ = nullptr;  ///< input, with which the others are compared
  const char* first_name_ = "";
  size_t next_ = 0, num_outputs_ = 0;
};

}  // namespace

void detail::Call(const OpRef& spec, std::span<const Passed> inputs, Tensor* one,
                  std::vector<Tensor>* all, const CallOptions& options) {
  const char* op = options.op ? options.op : spec.op();
  const auto given = std::find_if(inputs.begin(), inputs.end(),
                                  [](const Passed& passed) { return !passed.t->empty(); });
  Check<std::logic_error>(given != inputs.end(), op, "no input is given");
  const DevicePtr& device = given->t->block()->device();
  const PlanPtr plan = options.zeros ? nullptr : FindPlan(*device, spec, options.plan);
  const Outputs outputs{one, all};
  Placing placing(op, plan.get(), device, options.shape, inputs, outputs);
  if (all) all->reserve(5);  // those of batch norm; few calls have more
  spec.op_type().visit_arguments(spec.spec, placing);
  if (plan) Run(spec, device, plan, placing.inputs(), outputs.span(), options.scalars);
}

}  // namespace singa
