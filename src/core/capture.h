#pragma once

// What a device that queues its work may be able to do besides: keep what is queued, and queue it
// again as a whole. A Device that can is a Capturer as well.

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <stdexcept>

#include "singa/core/export.h"

namespace singa {

struct Scalars;

/// What was queued once and kept.
class SINGA_API CapturedWork {
 public:
  virtual ~CapturedWork();
  /// Queues it, after all that was queued before: the same operations on the same addresses, with
  /// the same numbers but for those of CaptureLive.
  virtual void Launch() = 0;
};

/// An operation asked for something that captured work cannot do, or failed while it was captured;
/// the message names it. It may do well by itself.
class SINGA_API NotCapturable : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

class SINGA_API Capturer {
 public:
  virtual ~Capturer();
  /// False where each operation is to be told apart from the others.
  virtual bool captures() const = 0;
  /// Calls queue(). What it queues from this thread does not run: that is what the result queues.
  /// queue() must take no memory of the device, copy nothing from or to the host, and wait for
  /// nothing, since none of this would be done again: raises NotCapturable.
  virtual std::unique_ptr<CapturedWork> Capture(const std::function<void()>& queue) = 0;
  /// Within Capture: calls queue(), for one operation whose numbers are at each launch what
  /// `scalars`, which live on, hold then. Raises NotCapturable where the operation keeps those that
  /// they hold now.
  virtual void CaptureLive(const Scalars& scalars, const std::function<void()>& queue) = 0;
  /// Most branches that captured work may have; 1: it runs in the order in which it was queued.
  virtual size_t branches() const = 0;
  /// Within Capture: what is queued from now on, up to the next call, waits for what was queued
  /// after those earlier calls alone, which are numbered from 0 on.
  virtual void CaptureAfter(std::span<const size_t> calls) = 0;
};

}  // namespace singa
