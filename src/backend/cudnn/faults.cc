#include "backend/cudnn/faults.h"

#include <cstring>
#include <mutex>
#include <stdexcept>
#include <string_view>

#include "singa/core/error.h"

namespace singa::cuda {
namespace {

constexpr int kMostOperations = 64;

struct Table {
  std::mutex mutex;
  Fault* faults =
      nullptr;  // pinned; never given back: kernels may still write when the program ends
  const char* op[kMostOperations] = {};
  int count = 0;
};

Table& TheTable() {
  static auto* table = new Table;
  return *table;
}

/// Under the table's mutex.
void TakeMemory(Table& table) {
  if (table.faults) return;
  constexpr size_t kBytes = kMostOperations * sizeof(Fault);
  table.faults = static_cast<Fault*>(runtime::MallocPinned(kBytes));
  std::memset(static_cast<void*>(table.faults), 0, kBytes);
}

}  // namespace

Fault* FaultOf(const char* op) {
  Table& table = TheTable();
  const std::lock_guard lock(table.mutex);
  TakeMemory(table);
  for (int i = 0; i < table.count; ++i)
    if (std::string_view(table.op[i]) == op) return &table.faults[i];
  if (table.count == kMostOperations) throw std::logic_error("too many operations with faults");
  table.op[table.count] = op;
  return &table.faults[table.count++];
}

void PrepareFaults() {
  Table& table = TheTable();
  const std::lock_guard lock(table.mutex);
  TakeMemory(table);
}

void RaiseFaults() {
  Table& table = TheTable();
  const std::lock_guard lock(table.mutex);
  for (int i = 0; i < table.count; ++i) {
    volatile Fault& fault = table.faults[i];
    if (!fault.claimed) continue;
    fault.claimed = 0;
    Check<std::out_of_range>(false, table.op[i], "value ", double{fault.value}, " at position ",
                             int64_t{fault.position}, " is no whole number in [",
                             int64_t{fault.low}, ", ", int64_t{fault.high}, ")");
  }
}

}  // namespace singa::cuda
