// The operators for CPU tensors.
#include "../ops/register.h"
#include "coarsen.h"
#include "components.h"
#include "device.h"
#include "dominant.h"
#include "dropout.h"
#include "edge_logits.h"
#include "lift.h"
#include "mask.h"
#include "pair_dot.h"
#include "pair_product.h"
#include "parse.h"
#include "progress.h"
#include "reduce.h"
#include "sorted_pairs.h"
#include "undirected.h"

STABLE_TORCH_LIBRARY_IMPL(gpn, CPU, m) { GPN_IMPLEMENT_OPERATORS(m, gpn::cpu::Device) }
