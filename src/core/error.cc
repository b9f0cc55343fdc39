#include "singa/core/error.h"

#include <sstream>

namespace singa {

namespace detail {

std::string JoinMessage(const char* op, std::initializer_list<MessagePart> parts) {
  std::ostringstream out;
  out << '[' << op << "] ";
  for (const MessagePart& part : parts) {
    if (part.write) {
      part.write(out, part.value);
    } else {
      out << static_cast<const char*>(part.value);
    }
  }
  return out.str();
}

}  // namespace detail

void ThrowOutside(const char* op, const char* argument, int64_t value, const char* at,
                  int64_t position, int64_t low, int64_t high) {
  throw ErrorWithFacts<std::out_of_range>(
      detail::Message(op, argument, " ", value, " ", at, " ", position, " is outside [", low, ", ",
                      high, ")"),
      {"outside", op, argument, value, position, low, high});
}

void ThrowNotWhole(const char* op, double value, int64_t position) {
  throw ErrorWithFacts<std::invalid_argument>(
      detail::Message(op, "index ", value, " at position ", position, " is not a whole number"),
      {"not_whole", op, "index"});
}

}  // namespace singa
