#include "backend/cuda/cudnn/nvidia/vendor.h"

#include <dlfcn.h>

#include <filesystem>
#include <sstream>
#include <vector>

#include "singa/core/environment.h"
#include "singa/core/error.h"

namespace singa::cudnn {
namespace {

namespace fs = std::filesystem;

/// Folders to search for the library: those in the environment variable, and those of PyPI's
/// packages in the parent folders of this library (site-packages/singa/lib/libsinga_cuda.so).
std::vector<fs::path> Folders(const char* folder) {
  std::vector<fs::path> folders;
  std::istringstream parts(EnvironmentValue("SINGA_NVIDIA_PATH"));
  for (std::string part; std::getline(parts, part, ':');) {
    folders.push_back(fs::path(part));
    folders.push_back(fs::path(part) / folder);
  }
  Dl_info info{};
  if (dladdr(reinterpret_cast<void*>(&Folders), &info) && info.dli_fname) {
    fs::path above = fs::path(info.dli_fname).parent_path();
    for (int i = 0; i < 4 && above.has_relative_path(); ++i, above = above.parent_path())
      folders.push_back(above / folder);
  }
  return folders;
}

}  // namespace

VendorLibrary::VendorLibrary(const char* file, const char* folder, const char* package)
    : file_(file) {
  handle_ = dlopen(file, RTLD_NOW | RTLD_LOCAL);
  if (handle_) return;
  std::string reason = dlerror();
  for (const fs::path& place : Folders(folder)) {
    std::error_code ignored;
    const fs::path path = place / file;
    if (!fs::exists(path, ignored)) continue;
    handle_ = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle_) return;
    reason = dlerror();  // the file exists but does not load: a better reason
  }
  problem_ = std::string(file) + " cannot be loaded; `pip install " + package +
             "` installs it, or set SINGA_NVIDIA_PATH to its folder (" + reason + ")";
}

void* VendorLibrary::Symbol(const char* name) const {
  if (!handle_) throw Unavailable(problem_);
  void* symbol = dlsym(handle_, name);
  if (!symbol)
    throw Unavailable(std::string(file_) + " has no " + name + "; it is too old for this singa");
  return symbol;
}

}  // namespace singa::cudnn
