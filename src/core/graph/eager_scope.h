#pragma once

#include <string>

namespace singa {

class RecordedStep;

/// While it lives, this thread executes instead of recording. Its end restores the recording and
/// the current layer.
class EagerScope {
 public:
  EagerScope();
  ~EagerScope();
  EagerScope(const EagerScope&) = delete;
  EagerScope& operator=(const EagerScope&) = delete;

 private:
  RecordedStep* step_;
  std::string layer_;
};

}  // namespace singa
