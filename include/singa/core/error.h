#pragma once

#include <sstream>
#include <stdexcept>
#include <string>

#include "singa/core/export.h"

namespace singa {

// What each exception becomes in Python:
//   std::invalid_argument ValueError · TypeError TypeError · std::out_of_range IndexError ·
//   std::bad_alloc MemoryError · NotImplemented NotImplementedError · any other RuntimeError.

/// A wrong element type or a wrong kind of argument.
class SINGA_API TypeError : public std::invalid_argument {
 public:
  using std::invalid_argument::invalid_argument;
};

/// Memory that could not be had; says how much was asked for and how much is held.
class SINGA_API OutOfMemory : public std::bad_alloc {
 public:
  explicit OutOfMemory(std::string what) : what_(std::move(what)) {}
  const char* what() const noexcept override { return what_.c_str(); }

 private:
  std::string what_;
};

/// A backend, device or feature that this build or machine does not have.
class SINGA_API Unavailable : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Something that singa knows of and does not do yet.
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

/// Throws `Error` with the message "[op] parts..." unless `condition` holds.
/// Parts are streamed only on failure, so a passing check costs one branch.
template <class Error = std::invalid_argument, class... Parts>
inline void Check(bool condition, const char* op, const Parts&... parts) {
  if (!condition) [[unlikely]]
    throw Error(detail::Message(op, parts...));
}

}  // namespace singa
