#include "backend/cudnn/library/nvidia/vendor.h"

#include <dlfcn.h>

#include <cstdlib>
#include <filesystem>
#include <sstream>
#include <vector>

#include "singa/core/error.h"

namespace singa::cudnn {
namespace {

namespace fs = std::filesystem;

/// Folders where the library may be: those of the environment, and those of PyPI's packages in the
/// folders above this library (site-packages/singa/lib/libsinga_cuda.so).
std::vector<fs::path> Folders(const char* folder) {
  std::vector<fs::path> folders;
  if (const char* named = std::getenv("SINGA_NVIDIA_PATH")) {
    std::istringstream parts(named);
    for (std::string part; std::getline(parts, part, ':');) {
      folders.push_back(fs::path(part));
      folders.push_back(fs::path(part) / folder);
    }
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
    reason = dlerror();  // there, but it does not load: the better reason
  }
  problem_ = std::string(file) + " cannot be loaded; `pip install " + package +
             "` brings it, or set SINGA_NVIDIA_PATH to its folder (" + reason + ")";
}

void* VendorLibrary::Symbol(const char* name) const {
  if (!handle_) throw Unavailable(problem_);
  void* symbol = dlsym(handle_, name);
  if (!symbol)
    throw Unavailable(std::string(file_) + " has no " + name + "; it is too old for this singa");
  return symbol;
}

}  // namespace singa::cudnn
