#pragma once

#ifndef SWIG
#include <Python.h>

#include "singa/core/tensor.h"
#endif

namespace singa::python {

/// Makes a tensor from an object with the buffer protocol, strided or not. With `copy` false the
/// tensor shares the object's memory and keeps it alive. Raises TypeError for element types that
/// singa does not have, and ValueError if a read-only buffer would be shared.
Tensor FromBuffer(PyObject* object, bool copy = true);

/// Copies the elements of a tensor in row-major order to an object with the buffer protocol. Raises
/// TypeError if the element types differ, and ValueError if the memory is read-only, not row-major
/// or of another size.
void ToBuffer(const Tensor& tensor, PyObject* object);

/// Makes a tensor that shares the memory of a DLPack capsule named "dltensor" and consumes the
/// capsule. CPU memory only.
Tensor FromDlpack(PyObject* capsule);

/// Exports a tensor's memory without a copy. The memory stays pinned as long as this object or one
/// of its capsules lives.
class Exporter {
 public:
  explicit Exporter(const Tensor& tensor);
  ~Exporter();
  Exporter(const Exporter&) = delete;
  Exporter& operator=(const Exporter&) = delete;

  /// The dict of NumPy's array interface, version 3. Raises TypeError for bfloat16, which NumPy
  /// does not have.
  PyObject* array_interface() const;
  /// A new DLPack capsule, named "dltensor".
  PyObject* dlpack() const;

 private:
  Tensor tensor_;
};

}  // namespace singa::python
