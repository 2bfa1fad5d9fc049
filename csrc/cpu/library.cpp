// The operators for CPU tensors.
#include "../ops/edge_logits.h"
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
#include "partition.h"
#include "progress.h"
#include "reduce.h"
#include "sorted_pairs.h"
#include "undirected.h"

STABLE_TORCH_LIBRARY_IMPL(gpn, CPU, m) {
  GPN_IMPLEMENT_OPERATORS(m, gpn::cpu::Device)
  // On CUDA the second is a loop over tiles, in gpn_ops/ops/.
  m.impl("edge_logits", GPN_BOX(gpn::cpu::Device, edge_logits));
  m.impl("edge_logits_backward", GPN_BOX(gpn::cpu::Device, edge_logits_backward));
}
