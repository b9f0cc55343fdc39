#pragma once

#ifndef SWIG
#include <Python.h>

#include <array>
#endif

// What the tape (python/singa/tape) does in each operation, beside the operation. In Python it took
// longer than a small operation.

namespace singa::python {

#ifndef SWIG
/// The bases of singa.tensor.Tensor and autograd.Operator, with the attributes that tape.cc reads.
PyObject* TapeTensorType();
PyObject* TapeOperatorType();

/// The objects in a Tensor's attributes data, requires_grad, stores_grad, name and grad, borrowed;
/// null for one that was deleted.
using TensorSettings = std::array<const PyObject*, 5>;
TensorSettings SettingsOf(PyObject* tensor);
#endif

/// A Tensor of class `type`, which derives from TapeTensorType(), with the defaults in the other
/// attributes.
PyObject* NewTapeTensor(PyObject* type, PyObject* data, PyObject* requires_grad, PyObject* creator,
                        PyObject* index);

/// The data of an operator's inputs, a tuple of Tensors, and whether one of them requires a
/// gradient; None where one of them is no Tensor. With `record`, if one requires a gradient, the
/// operator's src, _needs and _leads are set.
PyObject* Inputs(PyObject* op, PyObject* tensors, bool record);

/// Gives an operator its place on the tape, and counts it in the operators that it got its inputs
/// from, until it dies or ReleaseSources is called.
PyObject* Record(PyObject* op);

/// Lets go of an operator's inputs.
PyObject* ReleaseSources(PyObject* op);

}  // namespace singa::python
