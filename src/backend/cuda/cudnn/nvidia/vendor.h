#pragma once

// NVIDIA's libraries, opened on first use: singa runs without them.

#include <string>

namespace singa::cudnn {

/// A shared library, opened and never closed.
class VendorLibrary {
 public:
  /// Looks for `file` ("libcudnn.so.9") among the process's libraries and on the loader's path,
  /// then in the folders of SINGA_NVIDIA_PATH, then in `folder`, where PyPI's `package` installs it
  /// beside this package.
  VendorLibrary(const char* file, const char* folder, const char* package);

  /// Why the library is missing, and which package provides it; empty if it was found.
  const std::string& problem() const { return problem_; }
  /// The address of a function. Throws Unavailable if the library has no function of this name.
  void* Symbol(const char* name) const;
  template <class Function>
  Function* Load(const char* name) const {
    return reinterpret_cast<Function*>(Symbol(name));
  }

 private:
  const char* file_;
  void* handle_ = nullptr;
  std::string problem_;
};

/// A member that points to a function of the library that `file()` opens.
#define SINGA_VENDOR_FUNCTION(file, member, function) \
  decltype(::function)* member = file().Load<decltype(::function)>(#function)

}  // namespace singa::cudnn
