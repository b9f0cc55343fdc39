#include "tensor_object.h"

namespace singa::python {
namespace {

PyObject* New(PyTypeObject* type, PyObject*, PyObject*) {
  return NewTensorObject(reinterpret_cast<PyObject*>(type), Tensor());
}

void Deallocate(PyObject* self) {
  PyTypeObject* type = Py_TYPE(self);
  reinterpret_cast<TensorObject*>(self)->tensor.~Tensor();
  reinterpret_cast<freefunc>(PyType_GetSlot(type, Py_tp_free))(self);
  Py_DECREF(type);
}

}  // namespace

PyObject* TensorObjectType() {
  static PyObject* const type = [] {
    PyType_Slot slots[] = {{Py_tp_new, reinterpret_cast<void*>(New)},
                           {Py_tp_dealloc, reinterpret_cast<void*>(Deallocate)},
                           {0, nullptr}};
    PyType_Spec spec = {"singa._singa_wrap.TensorObject", sizeof(TensorObject), 0,
                        Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, slots};
    return PyType_FromSpec(&spec);
  }();
  return type;
}

}  // namespace singa::python
