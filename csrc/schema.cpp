// Every operator of the library, one line each. Host side: ops/; kernels: cpu/ and cuda/; plain PyTorch, fake
// kernels, gradients, and the operators that loop over tiles: gpn_ops/ops/.
#include <torch/csrc/stable/library.h>

STABLE_TORCH_LIBRARY(gpn, m) {
  m.def("parse(Tensor edge_index, Tensor scores, SymInt? num_nodes=None) -> Tensor");
  m.def("dominant(Tensor edge_index, Tensor scores, SymInt? num_nodes=None) -> Tensor");
  m.def("components(Tensor edge_index, SymInt? num_nodes=None) -> Tensor");

  // with_slot: also the coarse edge of every edge, -1 for a dropped one; else that result is empty. batch:
  // the graph of every node, where an edge between two graphs is an error. with_order: also the edges inside
  // clusters (core/edges.h: InnerEdges), in one tensor; else that result is empty. Of fewer than 2^32 - 1
  // edges, and where self-loops are dropped. takes_part: bool, of every edge; else all do. One that takes no
  // part is in no result, but checked.
  m.def(
      "coarsen(Tensor edge_index, Tensor cluster, bool self_loops=False, bool with_slot=False, Tensor? "
      "batch=None, bool with_order=False, Tensor? takes_part=None) -> (Tensor edges, Tensor slot, Tensor "
      "representative, Tensor order)");
  m.def("undirected(Tensor edge_index, SymInt num_nodes) -> (Tensor pairs, Tensor slot)");
  // Into results of given sizes, padded with -1, without a wait for the device. count: how many clusters
  // and edges there are. Where they are more than there is room for, all else is -1.
  m.def(
      "coarsen_padded(Tensor edge_index, Tensor cluster, SymInt num_clusters, SymInt num_edges, bool "
      "self_loops=False, bool with_slot=False, Tensor? batch=None, bool with_order=False, Tensor? "
      "takes_part=None) -> (Tensor edges, Tensor slot, Tensor representative, Tensor count, Tensor order)");
  m.def(
      "undirected_padded(Tensor edge_index, SymInt num_nodes, SymInt num_pairs) -> (Tensor pairs, Tensor "
      "slot, Tensor count)");
  // Of sorted edges that have their reverses, without a sort.
  m.def("sorted_pairs(Tensor edge_index, SymInt num_nodes, SymInt num_pairs) -> (Tensor pairs, Tensor slot)");
  // What a level of pooling asks, in one tensor: the sizes of core/progress.h, then of every graph whether it
  // shrinks, then whether it goes on. `coarse`, `representative`, `count`: what coarsen_padded gives.
  m.def(
      "progress(Tensor edge_index, Tensor batch, SymInt num_graphs, Tensor? cluster=None, Tensor? "
      "coarse=None, Tensor? representative=None, Tensor? count=None) -> Tensor");
  // The nodes of wanted graphs (not 0) before those of the others, each in their order, and the place of
  // every node in that. num_wanted: how many of them there are.
  m.def("partition(Tensor wanted, Tensor batch, SymInt num_wanted) -> (Tensor order, Tensor number)");

  // order: what coarsening found for these edges, of which the same take part, and clusters; it spares a sort
  // and changes no result. takes_part: as in coarsen.
  m.def(
      "mask(Tensor edge_index, Tensor scores, Tensor cluster, SymInt num_clusters, Tensor? order=None, "
      "Tensor? takes_part=None) -> (Tensor mask, Tensor count)");
  m.def("mask_backward(Tensor grad, Tensor edge_index, Tensor cluster, Tensor? takes_part=None) -> Tensor");
  m.def("reduce(Tensor x, Tensor cluster, SymInt num_clusters, str reduce='sum') -> Tensor");
  m.def("reduce_max_backward(Tensor grad, Tensor x, Tensor maximum, Tensor cluster) -> Tensor");
  m.def("cluster_sizes(Tensor cluster, SymInt num_clusters) -> Tensor");
  m.def("accumulate_(Tensor(a!) out, Tensor x, Tensor cluster) -> ()");
  m.def("lift(Tensor x, Tensor cluster) -> Tensor");

  m.def("pair_dot(Tensor h, Tensor weight, Tensor pairs) -> Tensor");
  m.def(
      "pair_dot_backward(Tensor grad, Tensor h, Tensor weight, Tensor pairs) -> (Tensor grad_h, Tensor "
      "grad_weight)");
  m.def("pair_product(Tensor h, Tensor pairs) -> Tensor");
  m.def("pair_product_backward_(Tensor(a!) grad_h, Tensor grad_product, Tensor h, Tensor pairs) -> ()");

  // What is dropped follows from the seed and an element's place, counted from `first`. With relu, ReLU comes
  // before.
  m.def("dropout(Tensor x, Tensor seed, float p, bool relu=False, SymInt first=0) -> Tensor");
  m.def("dropout_(Tensor(a!) x, Tensor seed, float p, bool relu=False, SymInt first=0) -> ()");

  // MLPs in tiles of rows. `product` is the dtype of matrix products; without a seed nothing is dropped.
  // Where there are no tiles, as in the CUDA kernels, tile_rows means nothing. The second form of backward
  // always has them: on CUDA it is for rows too wide for the first.
  m.def(
      "edge_logits(Tensor h, Tensor pairs, Tensor[] parameters, ScalarType product, float dropout, Tensor? "
      "seed, SymInt tile_rows) -> Tensor");
  m.def(
      "edge_logits_backward(Tensor grad, Tensor h, Tensor pairs, Tensor[] parameters, ScalarType product, "
      "float dropout, Tensor? seed, SymInt tile_rows) -> Tensor[]");
  m.def(
      "_edge_logits_backward_tiles(Tensor grad, Tensor h, Tensor pairs, Tensor[] parameters, ScalarType "
      "product, float dropout, Tensor? seed, SymInt tile_rows) -> Tensor[]");
  // LayerNorm(x + MLP(x)) of every row; with `cluster`, its sums over clusters (else num_clusters means
  // nothing). `kept`: with keep, on the CPU, what backward would otherwise compute anew; else empty.
  m.def(
      "residual(Tensor x, Tensor? cluster, SymInt num_clusters, Tensor[] parameters, ScalarType product, "
      "float dropout, Tensor? seed, SymInt tile_rows, bool keep) -> (Tensor out, Tensor kept)");
  m.def(
      "residual_backward(Tensor grad, Tensor x, Tensor? cluster, Tensor[] parameters, ScalarType product, "
      "float dropout, Tensor? seed, SymInt tile_rows, Tensor kept) -> Tensor[]");

  // `dominant` with its form chosen by hand ('auto', 'packed' or 'wide') and edge ids that start at
  // first_edge: what tests need to reach, at small sizes, the code that large graphs run.
  m.def(
      "_dominant(Tensor edge_index, Tensor scores, SymInt num_nodes, str form, SymInt first_edge=0) -> "
      "Tensor");
}
