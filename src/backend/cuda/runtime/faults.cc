#include "backend/cuda/runtime/faults.h"

#include <cstring>
#include <mutex>
#include <stdexcept>
#include <string_view>

#include "core/tensor/dtype_switch.h"
#include "singa/core/error.h"

namespace singa::cuda {
namespace {

constexpr int kMostOperations = 64;

struct Table {
  std::mutex mutex;
  // Pinned, and never freed: kernels may still write when the program ends.
  Fault* faults = nullptr;
  const char* op[kMostOperations] = {};
  int count = 0;
};

Table& TheTable() {
  static auto* table = new Table;
  return *table;
}

/// Allocates the table's memory. The caller holds the mutex.
void TakeMemory(Table& table) {
  if (table.faults) return;
  constexpr size_t kBytes = kMostOperations * sizeof(Fault);
  table.faults = static_cast<Fault*>(runtime::MallocPinned(kBytes));
  std::memset(static_cast<void*>(table.faults), 0, kBytes);
}

/// Throws the same errors as the kernels on the CPU.
[[noreturn]] void Raise(const char* op, const Fault& fault) {
  const auto kind = static_cast<FaultKind>(fault.kind);
  if (kind == FaultKind::kNotWhole) ThrowNotWhole(op, fault.value, fault.position);
  const bool is_label = kind == FaultKind::kNoLabel;
  ThrowOutside(op, is_label ? "label" : "index", Convert<int64_t>(fault.value),
               is_label ? "of row" : "at position", fault.position, fault.low, fault.high);
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
  const char* op = nullptr;
  Fault first{};
  for (int i = 0; i < table.count; ++i) {
    volatile Fault& fault = table.faults[i];
    if (fault.kind == static_cast<int>(FaultKind::kNone)) continue;
    if (!op) {
      op = table.op[i];
      first = {1, fault.kind, fault.value, fault.position, fault.low, fault.high};
    }
    fault.kind = static_cast<int>(FaultKind::kNone);
    fault.claimed = 0;  // later faults may follow from the first
  }
  if (op) Raise(op, first);
}

}  // namespace singa::cuda
