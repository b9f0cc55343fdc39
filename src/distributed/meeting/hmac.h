#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace singa::distributed {

using Digest = std::array<uint8_t, 32>;

/// SHA-256 (FIPS 180-4).
Digest Sha256(std::string_view message);
/// HMAC with SHA-256 (RFC 2104).
Digest HmacSha256(std::string_view key, std::string_view message);
/// Whether two digests are equal, in a time that does not depend on where they differ.
bool SameDigest(const Digest& a, const Digest& b);
/// Bytes that nobody can foresee. Raises std::runtime_error if the system has none.
Digest RandomBytes();
/// The same as 64 hexadecimal digits.
std::string NewSecret();

}  // namespace singa::distributed
