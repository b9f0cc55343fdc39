#include "model/dispatch/op_signature.h"

#include <bit>
#include <cstring>

#include "singa/core/error.h"

namespace singa {
namespace {

/// Mixes one word into the hash: multiply-and-fold over 128 bits (the step of Wang Yi's wyhash).
uint64_t Mix(uint64_t hash, uint64_t word) {
  const unsigned __int128 product =
      static_cast<unsigned __int128>(hash ^ 0x9e3779b97f4a7c15u) * (word ^ 0xe7037ed1a0b428dbu);
  return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64) ^
         std::rotl(word, 29);
}

}  // namespace

OpSignature::OpSignature(const char* op) : op_(op), hash_(0x2d358dccaa6c78a5u) {
  for (const char* c = op; *c; ++c) hash_ = Mix(hash_, static_cast<unsigned char>(*c));
}

void OpSignature::Add(const char* name, uint64_t word) {
  Check<std::logic_error>(words_ < kMaxWords, op_, "the signature has more than ", kMaxWords,
                          " words");
  name_[words_] = name;
  word_[words_++] = word;
  hash_ = Mix(hash_, word);
}

void OpSignature::Add(const char* name, const LayoutPtr& layout) {
  Check<std::logic_error>(layouts_ < kMaxLayouts, op_, "the signature has more than ", kMaxLayouts,
                          " layouts");
  Add(name, layout ? layout->hash() : 0);
  layout_[layouts_++] = layout;
}

bool OpSignature::operator==(const OpSignature& other) const {
  if (hash_ != other.hash_ || words_ != other.words_ || layouts_ != other.layouts_) return false;
  if (op_ != other.op_ && std::strcmp(op_, other.op_) != 0) return false;
  if (!std::equal(word_.begin(), word_.begin() + words_, other.word_.begin())) return false;
  for (int i = 0; i < layouts_; ++i)
    if (!SameLayout(layout_[i], other.layout_[i])) return false;
  return true;
}

const char* OpSignature::FirstDifference(const OpSignature& other) const {
  const int shared = std::min(words_, other.words_);
  for (int i = 0; i < shared; ++i)
    if (word_[i] != other.word_[i]) return name_[i];
  return "number of fields";
}

}  // namespace singa
