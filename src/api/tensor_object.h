#pragma once

#ifndef SWIG
#include <Python.h>

#include "singa/core/tensor.h"
#endif

namespace singa::python {

#ifndef SWIG
/// A raw tensor in Python: one object that holds its tensor, without a dict.
struct TensorObject {
  PyObject ob_base;
  Tensor tensor;
};

/// The type of these objects, from which the Python class Tensor derives. One for all extensions of
/// a process (tensor_object_type.cc): an extension other than _singa_wrap looks it up there.
PyObject* TensorObjectType();

/// The tensor in an object; null where it is none.
Tensor* TensorIn(PyObject* object);

/// A new object of `type`, which derives from TensorObjectType().
PyObject* NewTensorObject(PyObject* type, Tensor tensor);
#endif

/// The versions of raw tensors, a tuple of them and of None, as a tuple of integers; None has 0.
PyObject* Versions(PyObject* tensors);

}  // namespace singa::python
