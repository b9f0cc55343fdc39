// The line of docs/developers/adding_an_operation.md in src/api/operations.i, among the typemaps that it finds there.
// The types are those of singa_wrap.
%module operation_wrap

%{
#include "singa/operation/unit_rows.h"
#include "singa/singa.h"
#include "python_support.h"
#include "tensor_object.h"
%}

%feature("compactdefaultargs");

%include "pointers.i"
%include "exceptions.i"
%include "typemaps.i"
%include "new_tensor.i"
%import(module="singa.singa_wrap") "core.i"
%include "src/api/operations.i"
