// New raw tensors in Python, of the class that singa_wrap has registered.

%fragment("NewTensor", "header") %{
static PyObject* NewTensorObject(singa::Tensor tensor) {
  const auto* data = static_cast<const SwigPyClientData*>(SWIGTYPE_p_singa__Tensor->clientdata);
  return singa::python::NewTensorObject(data->klass, std::move(tensor));
}

// Empty ones become None.
static PyObject* NewTensor(singa::Tensor&& tensor) {
  return tensor.empty() ? SWIG_Py_Void() : NewTensorObject(std::move(tensor));
}
%}
