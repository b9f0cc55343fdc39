// Checks that Python containers still contain the same objects, faster than Python could.

%{
#include "same_objects.h"
%}

%feature("nothread") singa::python::SameObjects;

%include "same_objects.h"
