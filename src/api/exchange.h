#pragma once

#ifndef SWIG
#include <Python.h>

#include "singa/core/tensor.h"
#endif

namespace singa::python {

/// A tensor over (copy false) or from (copy true) the memory of an object with the buffer protocol,
/// strided or not. Shared memory stays alive with the tensor. Raises TypeError for element types
/// that singa does not have, ValueError for a read-only buffer that is to be shared.
Tensor FromBuffer(PyObject* object, bool copy = true);

/// Copies a tensor's elements, row-major, into the memory of an object with the buffer protocol.
/// Raises TypeError for elements of another type than the tensor's, ValueError for memory that is
/// read-only, not row-major or of another size.
void ToBuffer(const Tensor& tensor, PyObject* object);

/// A tensor over the memory of a DLPack capsule named "dltensor", which is consumed. CPU memory
/// only.
Tensor FromDlpack(PyObject* capsule);

/// Gives a tensor's memory away without a copy, and pins it for as long as this object or a capsule
/// lives.
class Exporter {
 public:
  explicit Exporter(const Tensor& tensor);
  ~Exporter();
  Exporter(const Exporter&) = delete;
  Exporter& operator=(const Exporter&) = delete;

  /// NumPy's dict (version 3). Raises TypeError for bfloat16, which NumPy does not have.
  PyObject* array_interface() const;
  /// A capsule "dltensor".
  PyObject* dlpack() const;

 private:
  Tensor tensor_;
};

}  // namespace singa::python
