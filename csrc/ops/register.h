// The kernels of every operator of schema.cpp, for one device.
#pragma once

#include "coarsen.h"
#include "components.h"
#include "dominant.h"
#include "dropout.h"
#include "lift.h"
#include "mask.h"
#include "pair_dot.h"
#include "pair_product.h"
#include "parse.h"
#include "reduce.h"
#include "undirected.h"

#define GPN_IMPLEMENT_OPERATORS(m, Device)                                     \
  m.impl("parse", TORCH_BOX(&gpn::parse<Device>));                             \
  m.impl("dominant", TORCH_BOX(&gpn::dominant<Device>));                       \
  m.impl("_dominant", TORCH_BOX(&gpn::dominant_form<Device>));                 \
  m.impl("components", TORCH_BOX(&gpn::components<Device>));                   \
  m.impl("coarsen", TORCH_BOX(&gpn::coarsen<Device>));                         \
  m.impl("undirected", TORCH_BOX(&gpn::undirected<Device>));                   \
  m.impl("mask", TORCH_BOX(&gpn::mask<Device>));                               \
  m.impl("mask_backward", TORCH_BOX(&gpn::mask_backward<Device>));             \
  m.impl("reduce", TORCH_BOX(&gpn::reduce<Device>));                           \
  m.impl("reduce_max_backward", TORCH_BOX(&gpn::reduce_max_backward<Device>)); \
  m.impl("accumulate_", TORCH_BOX(&gpn::accumulate_<Device>));                 \
  m.impl("cluster_sizes", TORCH_BOX(&gpn::cluster_sizes<Device>));             \
  m.impl("lift", TORCH_BOX(&gpn::lift<Device>));                               \
  m.impl("dropout", TORCH_BOX(&gpn::dropout<Device>));                         \
  m.impl("dropout_", TORCH_BOX(&gpn::dropout_<Device>));                       \
  m.impl("pair_dot", TORCH_BOX(&gpn::pair_dot<Device>));                       \
  m.impl("pair_dot_backward", TORCH_BOX(&gpn::pair_dot_backward<Device>));     \
  m.impl("pair_product", TORCH_BOX(&gpn::pair_product<Device>));               \
  m.impl("pair_product_backward_", TORCH_BOX(&gpn::pair_product_backward_<Device>));
