// The functional operations.

%ignore singa::ConvTransposeHandle::output_padding;
// Handles and recorders are checked when they are made and read-only afterwards.
%immutable;

%ignore singa::Activation;  // a bool or a tuple in Python
%include "singa/operation/activation.h"
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

%mutable;

%inline %{
/// PassOptions, flat. See singa/passes/passes.h.
void UsePasses(singa::Recording& recording, bool training, bool fuse, bool recompute) {
  singa::UsePasses(recording, {training, fuse, recompute});
}
%}
