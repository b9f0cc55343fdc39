#include "distributed/meeting/hmac.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

namespace singa::distributed {
namespace {

std::string Hex(const Digest& digest) {
  std::string text;
  for (const uint8_t byte : digest)
    for (const int digit : {byte >> 4, byte & 15}) text += "0123456789abcdef"[digit];
  return text;
}

// The examples of FIPS 180-4, and a million times "a".
TEST(Hmac, Sha256OfTheStandardsExamples) {
  EXPECT_EQ(Hex(Sha256("")), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(Hex(Sha256("abc")), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(Hex(Sha256("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq")),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(Hex(Sha256(std::string(1'000'000, 'a'))),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

// Test cases 1 to 4, 6 and 7 of RFC 4231. The keys of the last two are longer than a block.
TEST(Hmac, ExamplesOfRfc4231) {
  EXPECT_EQ(Hex(HmacSha256(std::string(20, '\x0b'), "Hi There")),
            "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
  EXPECT_EQ(Hex(HmacSha256("Jefe", "what do ya want for nothing?")),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  EXPECT_EQ(Hex(HmacSha256(std::string(20, '\xaa'), std::string(50, '\xdd'))),
            "773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe");
  std::string key;
  for (char c = 1; c <= 25; ++c) key += c;
  EXPECT_EQ(Hex(HmacSha256(key, std::string(50, '\xcd'))),
            "82558a389a443c0ea4cc819899f2083a85f0faa3e578f8077a2e3ff46729665b");
  const std::string longer(131, '\xaa');
  EXPECT_EQ(Hex(HmacSha256(longer, "Test Using Larger Than Block-Size Key - Hash Key First")),
            "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
  EXPECT_EQ(Hex(HmacSha256(longer,
                           "This is a test using a larger than block-size key and a larger than "
                           "block-size data. The key needs to be hashed before being used by the "
                           "HMAC algorithm.")),
            "9b09ffa71b942fcb27635fbcd5b0e944bfdc63644f0713938a7f51535c3a35e2");
}

// Every length around the ends of a block: the padding takes one block or two.
TEST(Hmac, LengthsAroundABlock) {
  std::set<std::string> all;
  for (size_t length = 0; length <= 130; ++length) all.insert(Hex(Sha256(std::string(length, 0))));
  EXPECT_EQ(all.size(), 131u);
  EXPECT_EQ(Hex(Sha256(std::string(55, 'a'))),
            "9f4390f8d30c2dd92ec9f095b65e2b9ae9b0a925a5258e241c9f1e910f734318");
  EXPECT_EQ(Hex(Sha256(std::string(56, 'a'))),
            "b35439a4ac6f0948b6d6f9e3c6af0f5f590ce20f1bde7090ef7970686ec6738a");
  EXPECT_EQ(Hex(Sha256(std::string(64, 'a'))),
            "ffe054fe7ae0cb6dc65c3af9b61d5209f439851db43d0ba5997337df154668eb");
}

TEST(Hmac, ComparesAllBytes) {
  const Digest digest = Sha256("a");
  EXPECT_TRUE(SameDigest(digest, Sha256("a")));
  for (size_t i = 0; i < digest.size(); ++i) {
    Digest other = digest;
    other[i] ^= 1;
    EXPECT_FALSE(SameDigest(digest, other)) << i;
  }
}

TEST(Hmac, SecretsAreNew) {
  const std::string one = NewSecret(), other = NewSecret();
  EXPECT_EQ(one.size(), 64u);
  EXPECT_EQ(one.find_first_not_of("0123456789abcdef"), one.npos);
  EXPECT_NE(one, other);
}

}  // namespace
}  // namespace singa::distributed
