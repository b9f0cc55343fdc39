// The part of the tape that is in C++.

%init %{
  Py_INCREF(singa::python::TapeTensorType());
  PyModule_AddObject(m, "TapeTensor", singa::python::TapeTensorType());
  Py_INCREF(singa::python::TapeOperatorType());
  PyModule_AddObject(m, "TapeOperator", singa::python::TapeOperatorType());
%}
%pythoncode %{
TapeTensor = _singa_wrap.TapeTensor
TapeOperator = _singa_wrap.TapeOperator
%}
