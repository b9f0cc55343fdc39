#pragma once

#include <sstream>
#include <stdexcept>
#include <string>

#include "singa/core/export.h"

namespace singa {

// C++ exceptions and the Python exceptions that they become:
//   std::invalid_argument ValueError · TypeError TypeError · std::out_of_range IndexError ·
//   std::bad_alloc MemoryError · NotImplemented NotImplementedError · any other RuntimeError.

/// An argument has the wrong element type or is of the wrong kind.
class SINGA_API TypeError : public std::invalid_argument {
 public:
  using std::invalid_argument::invalid_argument;
};

/// An allocation failed. The message says how much was requested and how much there is.
class SINGA_API OutOfMemory : public std::bad_alloc {
 public:
  explicit OutOfMemory(std::string what) : what_(std::move(what)) {}
  const char* what() const noexcept override { return what_.c_str(); }

 private:
  std::string what_;
};

/// This build or machine does not have the backend, device or feature.
class SINGA_API Unavailable : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// singa does not implement this yet.
class SINGA_API NotImplemented : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

namespace detail {

template <class... Parts>
std::string Message(const char* op, const Parts&... parts) {
  std::ostringstream out;
  out << '[' << op << "] ";
  (out << ... << parts);
  return out.str();
}

}  // namespace detail

/// Throws `Error` with the message "[op] parts..." unless `condition` holds. The message is built
/// only on failure, so a passing check costs one branch.
template <class Error = std::invalid_argument, class... Parts>
inline void Check(bool condition, const char* op, const Parts&... parts) {
  if (!condition) [[unlikely]]
    throw Error(detail::Message(op, parts...));
}

}  // namespace singa
