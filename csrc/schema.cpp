// Every operator of the library, one line each. Kernels: cpu/ and cuda/; fake kernels and gradients: gpn_ops/ops/.
#include <torch/csrc/stable/library.h>

STABLE_TORCH_LIBRARY(gpn, m) {
  m.def("parse(Tensor edge_index, Tensor scores, SymInt? num_nodes=None) -> Tensor");
  m.def("dominant(Tensor edge_index, Tensor scores, SymInt? num_nodes=None) -> Tensor");
  m.def("components(Tensor edge_index, SymInt? num_nodes=None) -> Tensor");

  // `dominant` with its form chosen by hand ('auto', 'packed' or 'wide') and edge ids that start at first_edge: what tests
  // need to reach, at small sizes, the code that large graphs run.
  m.def("_dominant(Tensor edge_index, Tensor scores, SymInt num_nodes, str form, SymInt first_edge=0) -> Tensor");
}
