#pragma once

#include "core/dtype_switch.h"
