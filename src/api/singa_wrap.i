// The Python extension. It includes the public headers; the .i files only say how to convert their
// types.
%module singa_wrap

%{
#include "singa/singa.h"
#include "python_support.h"
#include "tape.h"
#include "tensor_object.h"
%}

%pythonbegin "singa_load.py"

// One wrapper per function, defaults included, so that an error names the wrong argument. With
// overloads it would only say that no overload matches.
%feature("compactdefaultargs");

%include "pointers.i"
%include "exceptions.i"
%include "typemaps.i"
%include "tensor_object.i"
%include "core.i"
%include "exchange.i"
%include "held_objects.i"
%include "tape.i"
%include "operations.i"
%include "distributed.i"
%pythoncode "singa_functions.py"
%pythoncode "singa_methods.py"
%pythoncode "singa_platform.py"
%pythoncode "singa_names.py"
