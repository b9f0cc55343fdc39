#pragma once

#include <Python.h>

#include <array>

// What the tape (python/singa/tape) does in each operation, beside the operation. In Python it took
// longer than a small operation. The two types are made by hand, since SWIG's functions take their
// arguments in a tuple.

namespace singa::python {

/// The bases of singa.tensor.Tensor and autograd.Operator, with the attributes that tape.cc reads.
PyObject* TapeTensorType();
PyObject* TapeOperatorType();

/// The objects in a Tensor's attributes data, requires_grad, stores_grad, name and grad, borrowed;
/// null for one that was deleted.
using TensorSettings = std::array<const PyObject*, 5>;
TensorSettings SettingsOf(PyObject* tensor);

}  // namespace singa::python
