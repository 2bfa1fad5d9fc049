// The kernels of every operator of schema.cpp, for one device.
#pragma once

#include "coarsen.h"
#include "components.h"
#include "dominant.h"
#include "dropout.h"
#include "edge_logits.h"
#include "errors_of_torch.h"
#include "lift.h"
#include "mask.h"
#include "pair_dot.h"
#include "pair_product.h"
#include "parse.h"
#include "partition.h"
#include "progress.h"
#include "reduce.h"
#include "residual.h"
#include "sorted_pairs.h"
#include "undirected.h"

#define GPN_BOX(Device, kernel) TORCH_BOX((&gpn::Telling<Device, &gpn::kernel<Device>>::call))

#define GPN_IMPLEMENT_OPERATORS(m, Device)                                   \
  m.impl("parse", GPN_BOX(Device, parse));                                   \
  m.impl("dominant", GPN_BOX(Device, dominant));                             \
  m.impl("_dominant", GPN_BOX(Device, dominant_form));                       \
  m.impl("components", GPN_BOX(Device, components));                         \
  m.impl("coarsen", GPN_BOX(Device, coarsen));                               \
  m.impl("coarsen_padded", GPN_BOX(Device, coarsen_padded));                 \
  m.impl("partition", GPN_BOX(Device, partition));                           \
  m.impl("progress", GPN_BOX(Device, progress));                             \
  m.impl("sorted_pairs", GPN_BOX(Device, sorted_pairs));                     \
  m.impl("undirected", GPN_BOX(Device, undirected));                         \
  m.impl("undirected_padded", GPN_BOX(Device, undirected_padded));           \
  m.impl("mask", GPN_BOX(Device, mask));                                     \
  m.impl("mask_backward", GPN_BOX(Device, mask_backward));                   \
  m.impl("reduce", GPN_BOX(Device, reduce));                                 \
  m.impl("reduce_max_backward", GPN_BOX(Device, reduce_max_backward));       \
  m.impl("accumulate_", GPN_BOX(Device, accumulate_));                       \
  m.impl("cluster_sizes", GPN_BOX(Device, cluster_sizes));                   \
  m.impl("lift", GPN_BOX(Device, lift));                                     \
  m.impl("dropout", GPN_BOX(Device, dropout));                               \
  m.impl("dropout_", GPN_BOX(Device, dropout_));                             \
  m.impl("edge_logits", GPN_BOX(Device, edge_logits));                       \
  m.impl("edge_logits_backward", GPN_BOX(Device, edge_logits_backward));     \
  m.impl("pair_dot", GPN_BOX(Device, pair_dot));                             \
  m.impl("pair_dot_backward", GPN_BOX(Device, pair_dot_backward));           \
  m.impl("pair_product", GPN_BOX(Device, pair_product));                     \
  m.impl("pair_product_backward_", GPN_BOX(Device, pair_product_backward_)); \
  m.impl("residual", GPN_BOX(Device, residual));                             \
  m.impl("residual_backward", GPN_BOX(Device, residual_backward));
