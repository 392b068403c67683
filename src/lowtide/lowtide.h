// Umbrella header of the C++ API.
#pragma once

#include "core/bytes.h"
#include "core/error.h"
#include "core/plan.h"
#include "core/trace.h"
#include "runtime/session.h"
