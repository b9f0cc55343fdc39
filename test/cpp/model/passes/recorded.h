#pragma once

// Executes, records and replays a step.

#include <memory>
#include <utility>

#include "model/passes/passes.h"
#include "support.h"

namespace singa::test {

using Step = std::function<std::vector<Tensor>(const std::vector<Tensor>&)>;

/// Records the step on `inputs`, rewritten by one pass; null: as it is.
inline RecordingPtr Recorded(const Step& step, const std::vector<Tensor>& inputs, RewriteNodes pass,
                             std::vector<Tensor>* results) {
  const auto recording = std::make_shared<Recording>(inputs.at(0).device(), nullptr);
  if (pass)
    recording->step().SetRewriter([=](PassPhase phase, const RecordedStep& recorded, auto nodes) {
      return phase == PassPhase::kSegment ? pass(recorded, std::move(nodes)) : nodes;
    });
  recording->Start(inputs);
  *results = step(inputs);
  recording->Finish(*results);
  return recording;
}

/// Records the step on `inputs`, rewritten by the passes that `options` switch on.
inline RecordingPtr Recorded(const Step& step, const std::vector<Tensor>& inputs,
                             const PassOptions& options, std::vector<Tensor>* results) {
  const auto recording = std::make_shared<Recording>(inputs.at(0).device(), nullptr);
  UsePasses(*recording, options);
  recording->Start(inputs);
  *results = step(inputs);
  recording->Finish(*results);
  return recording;
}

inline std::vector<std::string> Operations(const Recording& recording) {
  std::vector<std::string> names;
  for (const Node& node : recording.step().nodes()) names.push_back(node.op);
  return names;
}

/// Expects tensors with the same types, shapes and bits.
inline void ExpectSame(const std::vector<Tensor>& got, const std::vector<Tensor>& want,
                       const std::string& what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_EQ(got[i].shape(), want[i].shape()) << what;
    ASSERT_EQ(got[i].data_type(), want[i].data_type()) << what;
    const auto bytes = static_cast<size_t>(got[i].bytes());
    std::vector<char> a(bytes), b(bytes);
    got[i].Contiguous().CopyToHost(a.data(), bytes);
    want[i].Contiguous().CopyToHost(b.data(), bytes);
    EXPECT_TRUE(a == b) << what << ", result " << i;
  }
}

}  // namespace singa::test
