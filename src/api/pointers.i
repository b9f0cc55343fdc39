// Fast unwrapping of arguments.

// For the stable ABI, SWIG 4.4 makes a string of the name of an argument's type before it looks for
// the pointer inside: that takes longer than all else in a short call. A proxy of the very type that
// is asked for needs no name, and a raw tensor has no pointer inside (tensor_object.h); everything
// else is left to SWIG.
%header %{
static int SingaConvertPointer(PyObject* object, void** pointer, swig_type_info* type, int flags, int* own) {
  if (type == SWIGTYPE_p_singa__Tensor) {
    if (singa::Tensor* tensor = singa::python::TensorIn(object)) {
      if (pointer) *pointer = tensor;
      if (own) *own = 0;
      return SWIG_OK;
    }
  }
  // Of an object that is being deallocated no attribute may be asked: an error would keep it.
  if (flags == 0 && object && object != Py_None && Py_TYPE(object) != SwigPyObject_Type()) {
    PyObject* held = PyObject_GetAttr(object, SWIG_This());
    if (!held) PyErr_Clear();
    SWIG_Py_XDECREF(held);  // the proxy still holds a reference
    if (held && Py_TYPE(held) == SwigPyObject_Type()) {
      const auto* wrapped = reinterpret_cast<const SwigPyObject*>(held);
      if (wrapped->ty == type) {
        if (pointer) *pointer = wrapped->ptr;
        if (own) *own = 0;
        return SWIG_OK;
      }
    }
  }
  return SWIG_Python_ConvertPtrAndOwn(object, pointer, type, flags, own);
}
#undef SWIG_ConvertPtr
#undef SWIG_ConvertPtrAndOwn
#define SWIG_ConvertPtr(object, pointer, type, flags) SingaConvertPointer(object, pointer, type, flags, nullptr)
#define SWIG_ConvertPtrAndOwn SingaConvertPointer
%}
