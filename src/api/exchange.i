// Exchange of tensors without a copy: the buffer protocol, __array_interface__ and DLPack.

%{
#include "exchange.h"
%}

// These access Python objects, so they keep the interpreter lock.
%feature("nothread") singa::python::FromBuffer;
%feature("nothread") singa::python::ToBuffer;
%feature("nothread") singa::python::FromDlpack;
%feature("nothread") singa::python::Exporter::Exporter;
%feature("nothread") singa::python::Exporter::array_interface;
%feature("nothread") singa::python::Exporter::dlpack;

%typemap(in) PyObject* { $1 = $input; }
%typemap(out) PyObject* { $result = $1; if (!$result) SWIG_fail; }

%rename(from_buffer) singa::python::FromBuffer;
%rename(to_buffer) singa::python::ToBuffer;
%rename(from_dlpack) singa::python::FromDlpack;

%include "exchange.h"

%extend singa::python::Exporter {
  %pythoncode %{
    @property
    def __array_interface__(self):
        return self.array_interface()
  %}
}
