// The operators for CUDA tensors.
#include "../ops/register.h"
#include "coarsen.cuh"
#include "components.cuh"
#include "device.h"
#include "dominant.cuh"
#include "dropout.cuh"
#include "edge_logits.cuh"
#include "lift.cuh"
#include "mask.cuh"
#include "pair_dot.cuh"
#include "pair_product.cuh"
#include "parse.cuh"
#include "progress.cuh"
#include "reduce.cuh"
#include "sorted_pairs.cuh"
#include "undirected.cuh"

STABLE_TORCH_LIBRARY_IMPL(gpn, CUDA, m) { GPN_IMPLEMENT_OPERATORS(m, gpn::cuda::Device) }
