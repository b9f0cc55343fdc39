#include "model/passes/chain_plan.h"

#include <algorithm>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include "core/device/parallel.h"
#include "core/tensor/round_up.h"
#include "singa/core/device.h"
#include "singa/core/threads.h"

namespace singa {
namespace {

/// Elements of a piece. A few buffers of this size fit into the second-level cache, and calling a
/// plan costs little in comparison with its work on a piece.
constexpr int64_t kPiece = 8192;
constexpr size_t kBufferBytes = kPiece * sizeof(double);

}  // namespace

/// The operands of one thread.
class ChainPlan::Pieces {
 public:
  Pieces(const ChainPlan& plan, const Execution& execution, int64_t thread)
      : plan_(plan), execution_(execution) {
    for (const Tensor& t : execution.inputs) inputs_.push_back(Memory(t));
    for (const Tensor& t : execution.outputs) outputs_.push_back(Memory(t));
    char* memory = static_cast<char*>(execution.workspace) +
                   static_cast<size_t>(thread) * plan.buffers_ * kBufferBytes;
    for (size_t i = 0; i < plan.buffers_; ++i)
      buffers_.push_back(Memory(memory + i * kBufferBytes, kBufferBytes));
  }

  void Run(int64_t begin, int64_t end) {
    std::vector<Tensor> inputs, outputs;
    for (const Part& part : plan_.parts_) {
      inputs.clear();
      outputs.clear();
      for (const Operand& operand : part.inputs) inputs.push_back(View(operand, begin, end));
      for (const Operand& operand : part.outputs) outputs.push_back(View(operand, begin, end));
      Scalars scalars = part.scalars;
      if (part.random) {
        scalars.seed = execution_.scalars.seed;
        scalars.offset = execution_.scalars.offset + static_cast<uint64_t>(begin);
      }
      part.plan->Run({execution_.device, inputs, outputs, scalars, nullptr});
    }
  }

 private:
  BlockPtr Memory(void* data, size_t bytes) const {
    auto block =
        std::make_shared<Block>(execution_.device.shared_from_this(), nullptr, bytes, nullptr);
    block->Bind(data);
    return block;
  }
  /// The memory of `t`, from its first element on.
  BlockPtr Memory(const Tensor& t) const {
    const size_t before = static_cast<size_t>(t.offset()) * SizeOf(t.data_type());
    return Memory(t.raw_data(), t.block()->size() - before);
  }

  Tensor View(const Operand& operand, int64_t begin, int64_t end) const {
    const std::vector<BlockPtr>& blocks = operand.place == Place::kInput    ? inputs_
                                          : operand.place == Place::kOutput ? outputs_
                                                                            : buffers_;
    const bool moves = operand.place != Place::kBuffer && !operand.scalar;
    return Tensor(blocks[operand.index], {end - begin}, {operand.scalar ? 0 : 1}, moves ? begin : 0,
                  operand.dtype);
  }

  const ChainPlan& plan_;
  const Execution& execution_;
  std::vector<BlockPtr> inputs_, outputs_, buffers_;
};

ChainPlan::ChainPlan(int64_t elements, size_t buffers, std::vector<Part> parts)
    : Plan(parts.front().plan->implementation()),
      elements_(elements),
      buffers_(buffers),
      threads_(static_cast<int>(std::clamp<int64_t>(
          elements / (kParallelGrain / static_cast<int64_t>(parts.size())), 1, NumThreads()))),
      parts_(std::move(parts)) {
  PlanInPlace();
}

void ChainPlan::PlanInPlace() {
  // An output may take over the memory of an input that no part reads after the first one that
  // writes the output. That part itself may read it where its plan allows.
  struct Use {
    size_t part;
    int position;  ///< of the last operand there that reads the input
    bool once;     ///< only that one does
    bool scalar;
    DType dtype;
  };
  std::vector<Use> last;
  size_t outputs = 0;
  for (size_t p = 0; p < parts_.size(); ++p) {
    const std::vector<Operand>& inputs = parts_[p].inputs;
    for (size_t k = 0; k < inputs.size(); ++k) {
      const Operand& operand = inputs[k];
      if (operand.place != Place::kInput) continue;
      last.resize(std::max(last.size(), operand.index + 1), {0, -1, true, true, operand.dtype});
      Use& use = last[operand.index];
      const bool again = use.part == p && use.position >= 0;
      use = {p, static_cast<int>(k), !again, operand.scalar, operand.dtype};
    }
    for (const Operand& operand : parts_[p].outputs)
      if (operand.place == Place::kOutput) outputs = std::max(outputs, operand.index + 1);
  }
  in_place_.assign(outputs, -1);
  std::set<size_t> taken, written;
  for (size_t p = 0; p < parts_.size(); ++p)
    for (size_t o = 0; o < parts_[p].outputs.size(); ++o) {
      const Operand& output = parts_[p].outputs[o];
      if (output.place != Place::kOutput || !written.insert(output.index).second) continue;
      for (size_t i = 0; i < last.size(); ++i) {
        const Use& use = last[i];
        const bool read = use.part < p || (use.part == p && use.once &&
                                           use.position == parts_[p].plan->inplace_input(o));
        if (!read || use.scalar || SizeOf(use.dtype) != SizeOf(output.dtype)) continue;
        if (!taken.insert(i).second) continue;
        in_place_[output.index] = static_cast<int>(i);
        break;
      }
    }
}

void ChainPlan::Run(const Execution& execution) const {
  for (const auto tensors : {execution.inputs, execution.outputs})
    for (const Tensor& t : tensors) t.raw_data();  // allocates, before threads ask for it
  const int64_t share = CeilDivide(elements_, int64_t{threads_});
  const int64_t wanted = threads_ * CeilDivide(share, kPiece);
  const int64_t step = RoundUp(CeilDivide(elements_, wanted), 64);  // threads share no cache line
  ParallelItems(CeilDivide(elements_, step), threads_, [&](Items& items) {
    Pieces pieces(*this, execution, items.thread());
    for (const int64_t i : items) pieces.Run(i * step, std::min(elements_, (i + 1) * step));
  });
}

std::string ChainPlan::Describe() const {
  return std::string(implementation()) + ", " + std::to_string(parts_.size()) + " in one pass";
}

size_t ChainPlan::workspace_bytes() const {
  return static_cast<size_t>(threads_) * buffers_ * kBufferBytes;
}

int ChainPlan::inplace_input(size_t i) const { return i < in_place_.size() ? in_place_[i] : -1; }

bool ChainPlan::SameAs(const Plan& other) const {
  const auto* chain = dynamic_cast<const ChainPlan*>(&other);
  const auto same = [](const Part& a, const Part& b) {
    return a.plan->SameAs(*b.plan) && a.scalars.v == b.scalars.v && a.random == b.random &&
           a.inputs == b.inputs && a.outputs == b.outputs;
  };
  return chain && elements_ == chain->elements_ && threads_ == chain->threads_ &&
         std::equal(parts_.begin(), parts_.end(), chain->parts_.begin(), chain->parts_.end(), same);
}

}  // namespace singa
