// Matrix products and linear layers.

#include <cmath>
#include <memory>

#include "backend/cpu/parts_product/offer.h"
#include "backend/cpu/parts_product/product.h"
#include "core/device/cache_size.h"
#include "model/dispatch/kernel.h"
#include "singa/core/environment.h"
#include "singa/dispatch/plan_cache.h"

namespace singa::cpu::parts_product {
namespace {

int64_t BatchStep(const Shape& batch, int64_t elements) {
  return batch.Count() == 1 ? 0 : elements;
}

class MatMulPlan final : public Plan {
 public:
  MatMulPlan(const MatMulSpec& spec, const PartsUnit& unit)
      : Plan("amx"),
        spec_(spec),
        unit_(unit),
        product_(unit, {spec.batch_count(), spec.m, spec.n, spec.k}, spec.threads) {}
  std::string Describe() const override { return NameOf(unit_); }
  double factor_error() const override { return batch_blocked::PartsError(unit_.parts); }
  size_t workspace_bytes() const override { return product_.workspace_bytes(); }

  void Run(const Execution& execution) const override {
    const MatMulSpec& s = spec_;
    const Matrix left(execution.in<float>(0), s.trans_a ? s.m : s.k, !s.trans_a, s.m, s.k,
                      BatchStep(s.a_batch, s.m * s.k));
    const Matrix right(execution.in<float>(1), s.trans_b ? s.k : s.n, s.trans_b, s.n, s.k,
                       BatchStep(s.b_batch, s.k * s.n));
    MatrixTarget target;
    target.data = execution.out<float>(0);
    target.rows = s.m;
    target.columns = s.n;
    target.batch_step = s.m * s.n;
    target.finish = {static_cast<float>(s.alpha), static_cast<float>(s.beta), s.relu};
    if (s.c_rows > 0) {
      target.addend = execution.in<float>(2);
      target.addend_row = s.c_rows == 1 ? 0 : s.c_cols;
      target.addend_column = s.c_cols == 1 ? 0 : 1;
    }
    const int64_t bytes = s.batch_count() * s.m * s.n * static_cast<int64_t>(sizeof(float));
    target.finish.streams = CanStream(target.data, s.n, bytes);
    product_.Run(left, right, target, execution.workspace);
  }

 private:
  MatMulSpec spec_;
  PartsUnit unit_;
  BlockedProduct product_;
};

}  // namespace

namespace {

/// SINGA_AMX_FLOAT32
const std::string& Wanted() {
  static const std::string wanted = EnvironmentValue("SINGA_AMX_FLOAT32");
  return wanted;
}

}  // namespace

PartsUnit UnitInUse() {
  return {Wanted() == "plain" ? Unit::kPlain : Unit::kAmx,
          RoundsFloat32Factors() ? batch_blocked::kLeastParts : batch_blocked::kMostParts};
}

std::string IsOff() {
  std::string reason;
  if (Wanted() == "off")
    reason = "SINGA_AMX_FLOAT32 is off";
  else if (!batch_blocked::IsThere(UnitInUse().unit))
    reason = "float32 of bfloat16 parts is for CPUs with AMX";
  else if (IsStrict())
    reason = "strict mode multiplies float32 numbers as they are";
  if (!reason.empty() && GetFloat32Precision() == Float32Precision::kHigh)
    reason += ", so that high precision computes as highest";
  return reason;
}

bool Pays(int64_t rows, int64_t columns, int64_t terms) {
  const PartsUnit by = UnitInUse();
  if (by.unit == Unit::kPlain) return true;  // for tests: whatever has parts
  // Per multiply-add AMX saves a time that is small beside that of packing an element, which its
  // factor's panels share, and of storing a sum, which its terms share. Measured with one thread,
  // beside oneDNN.
  const auto share = [](int64_t length) { return 1 / static_cast<double>(length); };
  const int64_t numbers = rows * columns + (rows + columns) * terms;
  const bool is_cached = numbers * static_cast<int64_t>(sizeof(float)) <= kStreamedBytes;
  const double most = by.parts == batch_blocked::kMostParts ? 0.0145 : is_cached ? 0.032 : 0.018;
  return share(rows) + share(columns) + share(terms) < most;
}

std::string Refuses(const MatMulSpec& s) {
  if (s.dtype != kFloat32) return "bfloat16 parts are for float32";
  if (s.k == 0) return "sums of nothing";
  const auto count = s.batch_count();
  for (const Shape& batch : {s.a_batch, s.b_batch})
    if (batch.Count() != 1 && batch.Count() != count)
      return "bfloat16 parts are for batches of which none or all axes broadcast";
  for (const double factor : {s.alpha, s.beta})
    if (factor != 0 && !std::isnormal(static_cast<float>(factor)))
      return "alpha or beta is out of range";
  return "";
}

bool Pays(const MatMulSpec& s) { return Pays(s.m, s.n, s.k); }

PlanPtr MakePlan(const MatMulSpec& spec, const PartsUnit& unit) {
  return std::make_shared<MatMulPlan>(spec, unit);
}

namespace {

constexpr const char* kSlower = "packing bfloat16 parts takes longer than AMX saves here";

std::string RefusesHere(const MatMulSpec& spec) {
  std::string reason = IsOff();
  return reason.empty() ? Refuses(spec) : reason;
}

PlanOrReason Make(const MatMulSpec& spec) {
  if (!Pays(spec)) return PlanOrReason::None(kSlower);
  return MakePlan(spec);
}

std::vector<Candidate> Candidates(const MatMulSpec& spec) {
  return {{"amx", [spec] { return MakePlan(spec); }, 0, Pays(spec) ? "" : kSlower}};
}

}  // namespace
}  // namespace singa::cpu::parts_product

namespace singa::cpu {

SINGA_KERNELS(cpu) {
  Register<MatMulSpec>(DeviceKind::kCpu, "amx",
                       {.refuses = parts_product::RefusesHere,
                        .make = parts_product::Make,
                        .candidates = parts_product::Candidates,
                        .priority = 1});
}

}  // namespace singa::cpu
