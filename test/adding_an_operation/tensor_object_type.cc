#include "tensor_object.h"

namespace singa::python {

PyObject* TensorObjectType() {
  static PyObject* const type = [] {
    PyObject* module = PyImport_ImportModule("singa._singa_wrap");
    PyObject* found = module ? PyObject_GetAttrString(module, "TensorObject") : nullptr;
    Py_XDECREF(module);
    return found;
  }();
  return type;
}

}  // namespace singa::python
