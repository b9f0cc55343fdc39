// The functional operations.

%ignore singa::ConvTransposeHandle::output_padding;
// What no Python module and no script of SINGA's uses.
%ignore singa::kWorkspaceByteLimit;
%ignore singa::Saved::kY;
%ignore singa::Saved::kXOrY;
// Handles and recorders are checked when they are made and read-only afterwards.
%immutable;

%ignore singa::Activation;  // a bool or a tuple in Python
%include "singa/operation/activation.h"
%include <attribute.i>
// The numbers of a Recorder's axes, which C++ reads by functions.
%define SINGA_AXIS_NUMBERS(d, h, w)
%attribute(singa::Recorder, int64_t, d, d);
%attribute(singa::Recorder, int64_t, h, h);
%attribute(singa::Recorder, int64_t, w, w);
%enddef
SINGA_AXIS_NUMBERS(depth, height, width)
SINGA_AXIS_NUMBERS(kernel_d, kernel_h, kernel_w)
SINGA_AXIS_NUMBERS(stride_d, stride_h, stride_w)
SINGA_AXIS_NUMBERS(pad_front, pad_top, pad_left)
SINGA_AXIS_NUMBERS(pad_back, pad_bottom, pad_right)
SINGA_AXIS_NUMBERS(dilation_d, dilation_h, dilation_w)
SINGA_AXIS_NUMBERS(conv_depth, conv_height, conv_width)
%include "singa/operation/recorder.h"
%include "singa/operation/elementwise.h"
%include "singa/operation/reduce.h"
%include "singa/operation/linalg.h"
%include "singa/operation/layout.h"
%include "singa/operation/conv.h"
%include "singa/operation/quantized.h"
%include "singa/operation/pooling.h"
%include "singa/operation/batchnorm.h"
%include "singa/operation/lrn.h"
%include "singa/operation/norm.h"
%include "singa/operation/softmax.h"
%include "singa/operation/attention.h"
%include "singa/operation/rotary.h"
%include "singa/operation/loss.h"
%include "singa/operation/dropout.h"
%include "singa/operation/embedding.h"
%include "singa/operation/indexing.h"
%include "singa/operation/sort.h"
%include "singa/operation/interpolate.h"
%include "singa/operation/random.h"
%mutable;  // UpdateConditions
%include "singa/operation/optimizer.h"
%immutable;
%include "singa/operation/rnn.h"
%include "singa/compat.h"

%ignore singa::PassOptions;
%ignore singa::UsePasses(Recording&, const PassOptions&, MemoryLimitPtr);
%ignore singa::MemoryLimit::Choice;
%ignore singa::MemoryLimit::choices;
%ignore singa::MemoryLimit::expected;
%ignore singa::MemoryLimit::weights;
%ignore singa::MemoryLimit::states;
%ignore singa::MemoryLimit::missing;
%include "singa/passes/passes.h"

%mutable;

%inline %{
/// PassOptions, flat. See singa/passes/passes.h.
void UsePasses(singa::Recording& recording, bool training, bool fuse, bool recompute,
               bool recompute_cheap, std::shared_ptr<singa::MemoryLimit> limit) {
  singa::UsePasses(recording, {training, fuse, recompute, recompute_cheap}, std::move(limit));
}
%}
