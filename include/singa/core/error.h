#pragma once

#include <cstdint>
#include <initializer_list>
#include <ostream>
#include <stdexcept>
#include <string>
#include <utility>

#include "singa/core/export.h"

namespace singa {

// C++ exceptions and the Python exceptions that they become:
//   std::invalid_argument ValueError · TypeError TypeError · std::out_of_range IndexError ·
//   std::domain_error ZeroDivisionError · std::bad_alloc MemoryError · any other RuntimeError.

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

/// What an error is about, for programs, which need not read its message. In Python it is a dict,
/// the attribute `_singa_facts` of the exception.
struct ErrorFacts {
  std::string kind;      ///< "not_float", "not_whole", or "outside", of an index or label
  std::string op;        ///< the operation
  std::string argument;  ///< the argument, or "index" or "label"
  int64_t value = 0;     ///< of "outside": a number that is not in [low, high), and its position
  int64_t position = 0;
  int64_t low = 0, high = 0;
};

/// An error whose facts programs read.
template <class Error>
class SINGA_API ErrorWithFacts : public Error {
 public:
  ErrorWithFacts(const std::string& what, ErrorFacts facts)
      : Error(what), facts_(std::move(facts)) {}
  const ErrorFacts& facts() const { return facts_; }

 private:
  ErrorFacts facts_;
};

namespace detail {

/// A part of a message: a reference to anything that a stream writes. Messages are joined from
/// these in one place, because a call would else compile its own stream.
struct MessagePart {
  MessagePart(const char* text) : value(text) {}  // NOLINT(google-explicit-constructor)
  template <class T>
  MessagePart(const T& value)  // NOLINT(google-explicit-constructor)
      : value(&value),
        write([](std::ostream& out, const void* value) { out << *static_cast<const T*>(value); }) {}
  const void* value;
  void (*write)(std::ostream& out, const void* value) = nullptr;  ///< null: value is a text
};

/// "[op] parts..."
SINGA_API std::string JoinMessage(const char* op, std::initializer_list<MessagePart> parts);

template <class... Parts>
std::string Message(const char* op, const Parts&... parts) {
  return JoinMessage(op, {MessagePart(parts)...});
}

template <class Error>
[[noreturn, gnu::cold, gnu::noinline]] void Throw(const char* op,
                                                  std::initializer_list<MessagePart> parts) {
  throw Error(JoinMessage(op, parts));
}

}  // namespace detail

/// Throws std::out_of_range with facts of kind "outside": "[op] index 5 at position 3 is outside
/// [0, 4)", where `argument` is "index" and `at` is "at position".
[[noreturn, gnu::cold]] SINGA_API void ThrowOutside(const char* op, const char* argument,
                                                    int64_t value, const char* at, int64_t position,
                                                    int64_t low, int64_t high);

/// Throws std::invalid_argument with facts of kind "not_whole", for an index with a fraction.
[[noreturn, gnu::cold]] SINGA_API void ThrowNotWhole(const char* op, double value,
                                                     int64_t position);

/// Throws `Error` with the message "[op] parts..." unless `condition` holds. The message is built
/// only on failure, so a passing check costs one branch.
template <class Error = std::invalid_argument, class... Parts>
inline void Check(bool condition, const char* op, const Parts&... parts) {
  if (!condition) [[unlikely]]
    detail::Throw<Error>(op, {detail::MessagePart(parts)...});
}

}  // namespace singa
