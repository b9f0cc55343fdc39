// A raw tensor is one Python object, which holds its singa::Tensor. SWIG would make three: a proxy
// with a dict, a pointer, and the tensor.

%feature("python:abc", "_singa_wrap.TensorObject") singa::Tensor;
%nodefaultdtor singa::Tensor;
%feature("shadow") singa::Tensor::Tensor %{
    def __init__(self, *args):
        copies = len(args) == 1 and isinstance(args[0], Tensor)  # a Tensor over the same memory
        _singa_wrap.Tensor_Become(self, args[0] if copies else _singa_wrap.new_Tensor(*args))
%}
%extend singa::Tensor {
  %pythoncode %{
    __slots__ = ("__weakref__",)
  %}
  void Become(const singa::Tensor& other) { *$self = other; }
  /// Another object over the same memory.
  singa::Tensor __copy__() const { return *$self; }
}

%include "new_tensor.i"

%init %{
  Py_INCREF(singa::python::TensorObjectType());
  PyModule_AddObject(m, "TensorObject", singa::python::TensorObjectType());
%}

%feature("nothread") singa::python::Versions;

%include "tensor_object.h"
