#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "singa/core/export.h"

namespace singa {

/// An environment variable that singa reads.
struct EnvironmentVariable {
  std::string name;
  std::string values;   ///< description of the accepted values
  std::string unset;    ///< the default: a value or a description
  std::string meaning;  ///< one sentence
};

/// All environment variables. docs/environment.md is generated from this list.
SINGA_API std::vector<EnvironmentVariable> EnvironmentVariables();

/// The value of a variable in EnvironmentVariables(). An unset or empty variable has its default;
/// for paths and other free text that is "". Raises std::invalid_argument, naming `op`, for names
/// that are not in the list and for values that are not accepted.
SINGA_API std::string EnvironmentValue(const std::string& name,
                                       const std::string& op = "environment");

#ifndef SWIG
/// Whether the variable is 1.
inline bool EnvironmentFlag(const char* name) { return EnvironmentValue(name) == "1"; }
/// The value of a variable that holds a number.
inline int64_t EnvironmentNumber(const char* name) { return std::stoll(EnvironmentValue(name)); }
#endif

}  // namespace singa
