#include "core/captured_nodes.h"

#include <string_view>
#include <utility>

#include "core/counted_reorder.h"
#include "singa/core/opcheck.h"
#include "singa/core/stats.h"

namespace singa {

CapturedWork::~CapturedWork() = default;
Capturer::~Capturer() = default;

CapturedNodes::CapturedNodes(Capturer& capturer, std::span<const Node> nodes)
    : capturer_(capturer), nodes_(nodes), alone_(nodes.size()) {
  for (const Node& node : nodes) {
    const bool reorders = std::string_view(node.op) == "Reorder";
    reorders_.push_back(reorders ? Reorders{1, static_cast<uint64_t>(node.outputs[0].bytes())}
                                 : Reorders{});
  }
}

bool CapturedNodes::Start(std::vector<const void*> addresses) {
  const bool observed = IsProfiling() || AreReordersRecorded() || GetOpcheck().every > 0;
  if (observed || !capturer_.captures()) return false;
  if (addresses == addresses_) return true;
  work_.clear();
  addresses_ = std::move(addresses);
  return false;
}

void CapturedNodes::Queue(size_t begin, size_t end, const std::function<void(size_t)>& queue) {
  while (begin < end) {
    size_t stop = begin;
    while (stop < end && !alone_[stop]) ++stop;
    if (stop - begin < 2) {  // by itself, or all alone between such
      queue(begin++);
    } else if (Launch(begin, stop, queue)) {
      begin = stop;
    }
  }
}

/// False where one of the nodes turns out to have to stay by itself.
bool CapturedNodes::Launch(size_t begin, size_t end, const std::function<void(size_t)>& queue) {
  Captured& captured = work_[begin];
  if (captured.work) {
    CountReorders(captured.reorders.count, captured.reorders.bytes);
  } else {
    size_t node = begin;
    try {
      captured.work = capturer_.Capture([&] {
        for (; node < end; ++node) {
          const bool live = nodes_[node].live || nodes_[node].random >= 0;
          if (!live) {
            queue(node);
          } else {
            capturer_.CaptureLive(nodes_[node].scalars, [&] { queue(node); });
          }
        }
      });
    } catch (const NotCapturable&) {
      alone_[node] = true;
      return false;
    }
    captured.reorders = {};
    for (node = begin; node < end; ++node) {
      captured.reorders.count += reorders_[node].count;
      captured.reorders.bytes += reorders_[node].bytes;
    }
  }
  captured.work->Launch();
  return true;
}

}  // namespace singa
