#include "tensor_object.h"

#include <new>
#include <utility>

#include "python_support.h"

namespace singa::python {

Tensor* TensorIn(PyObject* object) {
  auto* type = reinterpret_cast<PyTypeObject*>(TensorObjectType());
  if (!object || !PyObject_TypeCheck(object, type)) return nullptr;
  return &reinterpret_cast<TensorObject*>(object)->tensor;
}

PyObject* NewTensorObject(PyObject* type, Tensor tensor) {
  PyObject* self = PyType_GenericAlloc(reinterpret_cast<PyTypeObject*>(type), 0);
  if (self) new (&reinterpret_cast<TensorObject*>(self)->tensor) Tensor(std::move(tensor));
  return self;
}

PyObject* Versions(PyObject* tensors) {
  if (!PyTuple_Check(tensors))
    throw TypeError(detail::Message("Versions", "expected a tuple, got ", TypeName(tensors)));
  const Py_ssize_t size = PyTuple_Size(tensors);
  PyObject* versions = PyTuple_New(size);
  for (Py_ssize_t i = 0; versions && i < size; ++i) {
    PyObject* item = PyTuple_GetItem(tensors, i);
    const Tensor* tensor = item == Py_None ? &EmptyTensor() : TensorIn(item);
    if (!tensor) {
      Py_DECREF(versions);
      SetTypeError("Versions", "each of the tensors", "a Tensor", item);
      return nullptr;
    }
    PyTuple_SetItem(versions, i, PyLong_FromUnsignedLongLong(tensor->version()));
  }
  return versions;
}

}  // namespace singa::python
