// Checks that Python containers still contain the same objects, faster than Python could.

%{
#include "held_objects.h"
%}
%init %{
  Py_INCREF(singa::python::HeldObjectsType());
  PyModule_AddObject(m, "HeldObjects", singa::python::HeldObjectsType());
%}
%pythoncode %{
HeldObjects = _singa_wrap.HeldObjects
%}
