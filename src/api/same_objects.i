// Compares what Python containers hold with what they held, faster than Python could.

%{
#include "same_objects.h"
%}

%feature("nothread") singa::python::SameObjects;

%include "same_objects.h"
