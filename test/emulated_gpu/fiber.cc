#include "emulated_gpu/fiber.h"

#include <sys/mman.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#if defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
#endif

#if !defined(__x86_64__)
#include <ucontext.h>
#endif

namespace singa::cuda::emulated {
namespace {

constexpr size_t kStackBytes = size_t{128} << 10;  // pages are allocated on first use

/// Bytes to leave unused at the end of a stack. Stacks are multiples of 4 KiB apart, so without
/// this offset their ends, which are all that most kernels touch, would share a few cache lines.
size_t NextColour() {
  constexpr size_t kLine = 64, kColours = 64;
  static std::atomic<size_t> made{0};
  return made++ % kColours * kLine;
}

}  // namespace

#if defined(__x86_64__)

// Saves the callee-saved registers on one stack and restores them from the other, like swapcontext,
// but without its two system calls, which would cost more than most kernels. It ends in a jump,
// which is mostly predicted from the last switch; a return would be predicted to go to the caller.
extern "C" void singa_emulated_switch(void** save, void* load);
__asm__(R"(
.text
.p2align 4
.type singa_emulated_switch, @function
.globl singa_emulated_switch
.hidden singa_emulated_switch
singa_emulated_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  popq %rcx
  jmp *%rcx
.size singa_emulated_switch, . - singa_emulated_switch
)");

struct Context {
  void* stack_pointer = nullptr;
};

static void Switch(Context* from, Context* to) {
  singa_emulated_switch(&from->stack_pointer, to->stack_pointer);
}

static void Prepare(Context* context, char* stack, size_t bytes, void (*entry)()) {
  // Looks as if `entry` had been called: on entry, the stack pointer is 8 off a multiple of 16.
  void** top = reinterpret_cast<void**>(stack + bytes) - 1;
  *top = nullptr;
  *--top = reinterpret_cast<void*>(entry);
  for (int i = 0; i < 6; ++i) *--top = nullptr;
  context->stack_pointer = top;
}

#else

struct Context {
  ucontext_t context;
};

static void Switch(Context* from, Context* to) { swapcontext(&from->context, &to->context); }

static void Prepare(Context* context, char* stack, size_t bytes, void (*entry)()) {
  getcontext(&context->context);
  context->context.uc_stack.ss_sp = stack;
  context->context.uc_stack.ss_size = bytes;
  context->context.uc_link = nullptr;
  makecontext(&context->context, entry, 0);
}

#endif

struct Fiber::State {
  char* stack;
  size_t stack_bytes;  ///< the usable part
  Context inside, outside;
  void (*body)(void*);
  void* argument;
#if defined(__SANITIZE_ADDRESS__)
  bool left = true;  // or suspended for good; then frames may have left poisoned memory anywhere
  void* fake_stack_outside = nullptr;
  void* fake_stack_inside = nullptr;
  const void* outside_bottom = nullptr;
  size_t outside_size = 0;
#endif
#if defined(__SANITIZE_THREAD__)
  // Without them all fibers would share one stack of calls, which overflows.
  void *fiber_inside = nullptr, *fiber_outside = nullptr;
#endif
};

namespace {

thread_local Fiber* entering = nullptr;

}  // namespace

Fiber::~Fiber() {
  if (!state_) return;
#if defined(__SANITIZE_THREAD__)
  if (state_->fiber_inside) __tsan_destroy_fiber(state_->fiber_inside);
#endif
  munmap(state_->stack, kStackBytes);
  delete state_;
}

void Fiber::Start(void (*body)(void*), void* argument) {
  if (!state_) {
    void* stack = mmap(nullptr, kStackBytes, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (stack == MAP_FAILED) throw std::bad_alloc();
    state_ = new State;
    state_->stack = static_cast<char*>(stack);
    state_->stack_bytes = kStackBytes - NextColour();
  }
  state_->body = body;
  state_->argument = argument;
#if defined(__SANITIZE_ADDRESS__)
  if (!state_->left) __asan_unpoison_memory_region(state_->stack, kStackBytes);
  state_->left = false;
  state_->fake_stack_inside = nullptr;
#endif
#if defined(__SANITIZE_THREAD__)
  if (state_->fiber_inside) __tsan_destroy_fiber(state_->fiber_inside);
  state_->fiber_inside = __tsan_create_fiber(0);
#endif
  entering = this;
  Prepare(&state_->inside, state_->stack, state_->stack_bytes, [] {
    State* state = entering->state_;
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_finish_switch_fiber(nullptr, &state->outside_bottom, &state->outside_size);
#endif
    state->body(state->argument);
    std::abort();
  });
}

void Fiber::Resume() {
  entering = this;
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(&state_->fake_stack_outside, state_->stack, kStackBytes);
#endif
#if defined(__SANITIZE_THREAD__)
  state_->fiber_outside = __tsan_get_current_fiber();
  __tsan_switch_to_fiber(state_->fiber_inside, 0);
#endif
  Switch(&state_->outside, &state_->inside);
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(state_->fake_stack_outside, nullptr, nullptr);
#endif
}

bool Fiber::Holds(const void* data) const {
  return reinterpret_cast<uintptr_t>(data) - reinterpret_cast<uintptr_t>(state_->stack) <
         kStackBytes;
}

void Fiber::Suspend() {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(&state_->fake_stack_inside, state_->outside_bottom,
                                 state_->outside_size);
#endif
#if defined(__SANITIZE_THREAD__)
  __tsan_switch_to_fiber(state_->fiber_outside, 0);
#endif
  Switch(&state_->inside, &state_->outside);
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(state_->fake_stack_inside, &state_->outside_bottom,
                                  &state_->outside_size);
#endif
}

void Fiber::Leave() {
#if defined(__SANITIZE_ADDRESS__)
  // Unpoisons the frames that never return. Unpoisoning the whole stack in each run would take most
  // of the time.
  char* here = static_cast<char*>(__builtin_frame_address(0));
  __asan_unpoison_memory_region(here, static_cast<size_t>(state_->stack + kStackBytes - here));
  state_->left = true;
  // With null, the sanitizer frees its fake stack, a megabyte for each run.
  __sanitizer_start_switch_fiber(nullptr, state_->outside_bottom, state_->outside_size);
#endif
#if defined(__SANITIZE_THREAD__)
  __tsan_switch_to_fiber(state_->fiber_outside, 0);
#endif
  Switch(&state_->inside, &state_->outside);
}

}  // namespace singa::cuda::emulated
