#include "backend/cpu/norm/batchnorm_loops_inl.h"
