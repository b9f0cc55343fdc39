#include "model/dispatch/plan_cache.h"

#include <atomic>
#include <condition_variable>
#include <cstdio>
#include <cstring>
#include <list>
#include <map>
#include <mutex>
#include <unordered_map>
#include <unordered_set>

#include "core/statistics/uncounted.h"
#include "singa/core/environment.h"
#include "singa/core/error.h"

namespace singa {
namespace {

std::atomic<uint64_t>& Forgotten() {
  static std::atomic<uint64_t> count;
  return count;
}

constexpr uint64_t kDefaultBytes = uint64_t{256} << 20;
constexpr uint64_t kDefaultEntries = 4096;

class PlanCache {
 public:
  static PlanCache& Get() {
    static PlanCache& cache = *new PlanCache;  // plans may be asked for until the process ends
    return cache;
  }

  PlanPtr FindOrMake(const OpSignature& signature, PlanPtr (*make)(const void*),
                     const void* context) {
    std::unique_lock<std::mutex> lock(mutex_);
    for (;;) {
      const auto found = index_.find(signature);
      if (found == index_.end()) break;
      const Entry& entry = **found;
      if (entry.plan) {
        entries_.splice(entries_.begin(), entries_, *found);
        Count(signature.op(), &Counters::hits);
        return entry.plan;
      }
      built_.wait(lock);  // another thread is making it, and may fail
    }
    Count(signature.op(), &Counters::misses);
    entries_.push_front({signature, nullptr, 0});
    const auto position = entries_.begin();
    index_.insert(position);
    lock.unlock();
    PlanPtr plan;
    try {
      plan = make(context);
    } catch (...) {
      lock.lock();
      index_.erase(position);
      entries_.erase(position);
      built_.notify_all();
      throw;
    }
    lock.lock();
    position->plan = plan;
    position->bytes = plan->bytes() + sizeof(Entry) + 64;
    bytes_ += position->bytes;
    built_.notify_all();
    Trim(&*position);
    return plan;
  }

  PlanCacheStats stats() {
    std::lock_guard<std::mutex> lock(mutex_);
    PlanCacheStats stats{all_.hits, all_.misses,  evictions_, index_.size(),
                         bytes_,    max_entries_, max_bytes_, {}};
    std::map<std::string, Counters> merged;  // one name may come from several literals
    for (const auto& [op, counters] : counters_) {
      merged[op].hits += counters.hits;
      merged[op].misses += counters.misses;
    }
    for (const auto& [op, counters] : merged)
      stats.by_op.push_back({op, counters.hits, counters.misses});
    return stats;
  }

  void SetLimit(uint64_t bytes, uint64_t entries) {
    std::lock_guard<std::mutex> lock(mutex_);
    if (bytes) max_bytes_ = bytes;
    if (entries) max_entries_ = entries;
    Trim(nullptr);
  }

  void Drop(const OpSignature& signature) {
    std::lock_guard<std::mutex> lock(mutex_);
    const auto found = index_.find(signature);
    if (found != index_.end() && (*found)->plan) Erase(*found);
  }

  void DropNamed(const std::string& description) {
    std::lock_guard<std::mutex> lock(mutex_);
    for (auto it = entries_.begin(); it != entries_.end();)
      it = it->plan && it->plan->Describe() == description ? Erase(it) : std::next(it);
  }

  void DropAll() {
    std::lock_guard<std::mutex> lock(mutex_);
    EraseAll();
  }

  void Clear() {
    std::lock_guard<std::mutex> lock(mutex_);
    EraseAll();
    all_ = {};
    evictions_ = 0;
    counters_.clear();
    warned_ = false;
  }

 private:
  struct Entry {
    OpSignature signature;
    PlanPtr plan;  // null while it is being made
    uint64_t bytes;
  };
  struct Counters {
    uint64_t hits = 0;
    uint64_t misses = 0;
  };
  using Entries = std::list<Entry>;

  // Entries are found by their signatures, which are large and stored once.
  static const OpSignature& KeyOf(Entries::const_iterator entry) { return entry->signature; }
  static const OpSignature& KeyOf(const OpSignature& signature) { return signature; }
  struct Hash {
    using is_transparent = void;
    size_t operator()(const auto& key) const { return KeyOf(key).hash(); }
  };
  struct Equal {
    using is_transparent = void;
    bool operator()(const auto& a, const auto& b) const { return KeyOf(a) == KeyOf(b); }
  };

  void Count(const char* op, uint64_t Counters::*number) {
    if (IsUncounted()) return;
    ++(all_.*number);
    ++(counters_[op].*number);
  }

  Entries::iterator Erase(Entries::iterator it) {
    bytes_ -= it->bytes;
    ++Forgotten();
    index_.erase(it);
    return entries_.erase(it);
  }

  void EraseAll() {
    for (auto it = entries_.begin(); it != entries_.end();)
      it = it->plan ? Erase(it) : std::next(it);
  }

  /// Evicts the oldest plans until the limits hold. `keep`, the newest, stays.
  void Trim(const Entry* keep) {
    for (auto it = entries_.end();
         it != entries_.begin() && (bytes_ > max_bytes_ || index_.size() > max_entries_);) {
      --it;
      if (!it->plan || &*it == keep) continue;
      ++evictions_;
      if (keep && !warned_ && evictions_ > 64 && evictions_ > all_.hits) Warn(*keep, *it);
      it = Erase(it);
    }
  }

  void Warn(const Entry& made, const Entry& evicted) {
    warned_ = true;
    const Entry* other = &evicted;
    for (const Entry& entry : entries_)
      if (&entry != &made && std::strcmp(entry.signature.op(), made.signature.op()) == 0) {
        other = &entry;
        break;
      }
    std::fprintf(stderr,
                 "singa: the plan cache makes more plans than it finds (%llu hits, %llu misses, "
                 "limit %llu entries or "
                 "%llu MiB); '%s' of %s keeps changing. Pad or bucket that dimension, or raise "
                 "singa.plan_cache.set_limit().\n",
                 static_cast<unsigned long long>(all_.hits),
                 static_cast<unsigned long long>(all_.misses),
                 static_cast<unsigned long long>(max_entries_),
                 static_cast<unsigned long long>(max_bytes_ >> 20),
                 made.signature.FirstDifference(other->signature), made.signature.op());
  }

  std::mutex mutex_;
  std::condition_variable built_;
  Entries entries_;  // most recently used first
  std::unordered_set<Entries::iterator, Hash, Equal> index_;
  std::unordered_map<const char*, Counters> counters_;
  Counters all_;
  uint64_t evictions_ = 0, bytes_ = 0;
  uint64_t max_bytes_ = kDefaultBytes, max_entries_ = kDefaultEntries;
  bool warned_ = false;
};

std::atomic<bool>& CacheEnabled() {
  static std::atomic<bool> enabled = EnvironmentFlag("SINGA_PLAN_CACHE");
  return enabled;
}

}  // namespace

PlanPtr FindOrMakePlan(const OpSignature& signature, PlanPtr (*make)(const void*),
                       const void* context) {
  if (!PlanCacheEnabled()) {
    ++Forgotten();
    return make(context);
  }
  return PlanCache::Get().FindOrMake(signature, make, context);
}

PlanCacheStats GetPlanCacheStats() { return PlanCache::Get().stats(); }
void SetPlanCacheLimit(uint64_t bytes, uint64_t entries) {
  PlanCache::Get().SetLimit(bytes, entries);
}
void ClearPlanCache() { PlanCache::Get().Clear(); }
uint64_t CountForgottenPlans() { return Forgotten(); }
void DropPlan(const OpSignature& signature) { PlanCache::Get().Drop(signature); }
void DropPlansNamed(const std::string& description) { PlanCache::Get().DropNamed(description); }
void DropPlans() { PlanCache::Get().DropAll(); }
void EnablePlanCache(bool enable) { CacheEnabled().store(enable); }
bool PlanCacheEnabled() { return CacheEnabled().load(std::memory_order_relaxed); }

}  // namespace singa
