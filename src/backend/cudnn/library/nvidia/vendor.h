#pragma once

// Libraries of NVIDIA's that are opened when they are needed first: singa runs without them.

#include <string>

namespace singa::cudnn {

/// A shared library, opened and never closed.
class VendorLibrary {
 public:
  /// Looks for `file` ("libcudnn.so.9") among the libraries of the process and where the loader
  /// looks, then in the folders of SINGA_NVIDIA_PATH, and then where `package` of PyPI puts it,
  /// `folder`, beside this package.
  VendorLibrary(const char* file, const char* folder, const char* package);

  /// Why it is not there, and which package brings it; empty where it is.
  const std::string& problem() const { return problem_; }
  /// The address of a function; raises Unavailable where the library has none of that name.
  void* Symbol(const char* name) const;
  template <class Function>
  void Load(Function*& function, const char* name) const {
    function = reinterpret_cast<Function*>(Symbol(name));
  }

 private:
  const char* file_;
  void* handle_ = nullptr;
  std::string problem_;
};

}  // namespace singa::cudnn
