"""Tensors, and the tape of operators that computed them.

- `grad_mode`: whether the tape records: `training`, `no_grad`, `enable_grad`.
- `tensor`: the Tensor. Its signs and shape functions are installed by `singa.ops`.
- `operator`: the Operator, which remembers what it was applied to.
- `backward`: from a result back to the gradients of the tensors that store theirs.
- `autocast`: the type in which products are computed, for a while.
- `step_recording`: what a step that is being recorded for replay is told.
- `assignment`: values for tensors, checked before the first one is written.
- `arguments`: errors that name the argument that is no tensor.
- `gradcheck`: gradients against finite differences.

Nothing here knows an operation; `singa.ops` stands on it.
"""
