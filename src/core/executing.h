#pragma once

#include <string>

namespace singa {

class Recording;

/// For the length of a scope this thread executes, whatever it records, and the layer it is in may
/// change.
class Executing {
 public:
  Executing();
  ~Executing();
  Executing(const Executing&) = delete;
  Executing& operator=(const Executing&) = delete;

 private:
  Recording* recording_;
  std::string layer_;
};

}  // namespace singa
