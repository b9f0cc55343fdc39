// The Python extension. Public headers are included, not retyped; what follows only says how their types travel.
%module singa_wrap

%{
#include "singa/singa.h"
#include "python_support.h"
%}

%pythonbegin "singa_load.py"

// One wrapper for all defaults, whose errors name the argument; overloads would only say that none fits.
%feature("compactdefaultargs");

%include "pointers.i"
%include "exceptions.i"
%include "typemaps.i"
%include "core.i"
%include "exchange.i"
%include "same_objects.i"
%include "operations.i"
%pythoncode "singa_names.py"
