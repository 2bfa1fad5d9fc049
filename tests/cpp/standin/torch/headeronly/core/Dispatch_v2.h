// See tensor.h.
#pragma once

#include "../../../tensor.h"
