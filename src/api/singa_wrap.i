// The Python extension. Public headers are included, not retyped; what follows only says how their types travel.
%module singa_wrap

%{
#include "singa/singa.h"
#include "python_support.h"
%}

%include "exceptions.i"
%include "typemaps.i"
%include "core.i"
%include "exchange.i"
%include "operations.i"
%pythoncode "singa_names.py"
