#pragma once

#include "core/parallel.h"
