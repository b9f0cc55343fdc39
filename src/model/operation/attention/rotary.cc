#include "singa/operation/rotary.h"

#include "model/dispatch/dispatch.h"
#include "model/dispatch/opcheck/difference.h"
#include "model/operation/attention/rotary_spec.h"
#include "model/operation/check.h"

namespace singa {
namespace {

constexpr char kOp[] = "Rotary";

void CheckTable(const char* op, const char* name, const Tensor& t, const Tensor& x) {
  CheckFloat(op, name, t);
  const Shape& s = t.shape();
  const int rank = t.rank();
  Check((rank == 2 || (rank == 3 && s[0] == x.shape(0))) && s[rank - 2] == x.shape(2) &&
            s[rank - 1] <= x.shape(3) / 2,
        op, name, " must have shape (N, R / 2) or (B, N, R / 2) with at most half of the features ",
        "of x ", x.shape(), ", got ", s);
  CheckSameDevice(op, name, t, "x", x);
}

/// (B, N, R / 2), in the type that kernels read.
Tensor Table(const Tensor& t, const RotarySpec& spec) {
  return t.AsType(spec.table_type()).Plain().Broadcast(spec.table_shape());
}

template <class Spec>
Tensor Turn(const char* op, const char* name, const Tensor& x, const Tensor& cos, const Tensor& sin,
            bool interleaved) {
  CheckFloat(op, name, x);
  Check(x.rank() == 4, op, name, " must have shape (B, H, N, D), got ", x);
  CheckTable(op, "cos", cos, x);
  CheckTable(op, "sin", sin, x);
  Check(cos.shape() == sin.shape(), op, "cos and sin must have one shape, got ", cos.shape(),
        " and ", sin.shape());
  Spec spec;
  spec.batch = x.shape(0), spec.heads = x.shape(1), spec.length = x.shape(2);
  spec.dim = x.shape(3), spec.pairs = cos.shape(cos.rank() - 1);
  spec.dtype = x.data_type();
  spec.interleaved = interleaved;
  return Call(spec, {x, Table(cos, spec), Table(sin, spec)});
}

}  // namespace

Tensor Rotary(const Tensor& x, const Tensor& cos, const Tensor& sin, bool interleaved) {
  return Turn<RotarySpec>(kOp, "x", x, cos, sin, interleaved);
}

Tensor RotaryBackward(const Tensor& dy, const Tensor& cos, const Tensor& sin, bool interleaved) {
  return Turn<RotaryBackwardSpec>("RotaryBackward", "dy", dy, cos, sin, interleaved);
}

void RotarySpec::CheckFields(const CallChecker& call) const {
  call.RequireFloat("x", dtype);
  call.RequireShape(x_shape());
  call.RequireShape(table_shape());
  call.Require(pairs <= dim / 2, pairs, " pairs do not fit ", dim, " features");
}

std::vector<Tensor> RotarySpec::Magnitudes(const std::vector<Tensor>& inputs) const {
  const auto magnitudes = [&](size_t i) {
    return opcheck::Read(opcheck::AbsoluteValue(inputs[i]));
  };
  const opcheck::Values x = magnitudes(0), cos = magnitudes(1), sin = magnitudes(2);
  opcheck::Values sizes = x;
  for (int64_t row = 0; row < batch * heads * length; ++row) {
    const int64_t table = (row / length / heads * length + row % length) * pairs;
    for (int64_t i = 0; i < pairs; ++i) {
      const auto a = static_cast<size_t>(row * dim + first(i));
      const auto b = static_cast<size_t>(row * dim + second(i));
      const auto at = static_cast<size_t>(table + i);
      sizes[a] = x[a] * cos[at] + x[b] * sin[at];
      sizes[b] = x[a] * sin[at] + x[b] * cos[at];
    }
  }
  return {opcheck::Write(sizes, x_shape())};
}

}  // namespace singa
