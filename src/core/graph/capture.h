#pragma once

// Captured work: operations that a device has kept while they were queued, and queues again as a
// whole. A Device that can do this is a Capturer, too.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>

#include "singa/core/export.h"

namespace singa {

class Device;
struct Node;
struct Scalars;

/// Operations that were queued once and kept.
class SINGA_API CapturedWork {
 public:
  virtual ~CapturedWork();
  /// Queues the operations again, after all work queued before, on the same addresses. Numbers are
  /// those of the capture, except those of CaptureLive.
  virtual void Launch() = 0;
};

/// An operation asked for something that captured work cannot do, or failed while it was captured.
/// The message names it. Capturing it alone may succeed.
class SINGA_API NotCapturable : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

class SINGA_API Capturer {
 public:
  virtual ~Capturer();
  /// False while each operation has to be queued by itself, as for a profile.
  virtual bool captures() const = 0;
  /// Calls queue() and returns the operations that it queues from this thread; they do not run.
  /// Raises NotCapturable if queue() allocates memory of the device, copies from or to the host, or
  /// waits, since a launch cannot repeat these.
  virtual std::unique_ptr<CapturedWork> Capture(const std::function<void()>& queue) = 0;
  /// Within Capture: calls queue(), for one operation that reads `scalars` anew at each launch.
  /// `scalars` have to outlive the captured work. Raises NotCapturable if the operation keeps the
  /// present numbers.
  virtual void CaptureLive(const Scalars& scalars, const std::function<void()>& queue) = 0;
  /// Largest number of branches in captured work; 1: it runs in the order in which it was queued.
  virtual size_t branches() const = 0;
  /// Within Capture: operations queued between this call and the next one wait only for those that
  /// were queued after the given earlier calls. Calls are numbered from 0.
  virtual void CaptureAfter(std::span<const size_t> calls) = 0;
};

/// A plan whose work exchanges data with other processes. Captured, it works only if all of them
/// have captured it together, and launch what they have captured together.
class SINGA_API JointPlan {
 public:
  virtual ~JointPlan();
  /// What all processes have to agree about, and a hash of the rest that has to be equal.
  virtual std::string Text(const Node& node) const = 0;
  virtual uint64_t Layouts(const Node& node) const = 0;
  /// Asks all processes whether they are about to launch work with the plans of this `text`, which
  /// was captured in the agreement `captured`; 0: it is to be captured now. Returns a number of the
  /// agreement, equal on all of them; 0: not all do. Raises an error if texts differ.
  virtual uint64_t AgreeToLaunch(Device& device, const std::string& text, uint64_t layouts,
                                 uint64_t captured) const = 0;
  /// To be called after the launch.
  virtual void Launched(Device& device) const = 0;
};

}  // namespace singa
