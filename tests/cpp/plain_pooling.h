// Plain solvers of the pooling operators, to compare kernels with.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <set>
#include <utility>

#include "check.h"
#include "core/progress.h"
#include "core/sums.h"

namespace gpn::test {

struct PlainEdges {
  std::vector<int64_t> row, col, slot;
  friend bool operator==(const PlainEdges&, const PlainEdges&) = default;
};

// The distinct ones of the edges (r, c), and which of them each edge is; an edge that is not kept has slot
// -1.
inline PlainEdges plain_distinct(const std::vector<std::pair<int64_t, int64_t>>& edges,
                                 const std::vector<bool>& kept) {
  std::map<std::pair<int64_t, int64_t>, int64_t> number;
  for (size_t e = 0; e < edges.size(); ++e) {
    if (kept[e]) number[edges[e]] = 0;
  }
  PlainEdges plain;
  for (auto& [edge, position] : number) {
    position = int64_t(plain.row.size());
    plain.row.push_back(edge.first);
    plain.col.push_back(edge.second);
  }
  for (size_t e = 0; e < edges.size(); ++e) plain.slot.push_back(kept[e] ? number[edges[e]] : -1);
  return plain;
}

// takes_part: of every edge, or null: all do.
inline PlainEdges plain_coarsen(const Edges& edges, const std::vector<int64_t>& cluster, bool self_loops,
                                const bool* takes_part = nullptr) {
  std::vector<std::pair<int64_t, int64_t>> renamed;
  std::vector<bool> kept;
  for (int64_t e = 0; e < edges.count; ++e) {
    renamed.emplace_back(cluster[size_t(edges.row[e])], cluster[size_t(edges.col[e])]);
    kept.push_back((!takes_part || takes_part[e]) &&
                   (self_loops || renamed.back().first != renamed.back().second));
  }
  return plain_distinct(renamed, kept);
}

// What InnerEdges says.
inline std::vector<uint32_t> plain_inner_order(const Edges& edges, const std::vector<int64_t>& cluster,
                                               const bool* takes_part = nullptr) {
  std::vector<std::pair<int64_t, int64_t>> inner;
  for (int64_t e = 0; e < edges.count; ++e) {
    const int64_t c = cluster[size_t(edges.row[e])];
    if ((!takes_part || takes_part[e]) && c == cluster[size_t(edges.col[e])]) inner.emplace_back(c, e);
  }
  std::sort(inner.begin(), inner.end());
  std::vector<uint32_t> order(size_t(2 * edges.count), uint32_t(-1));
  for (int64_t c = 0; c <= edges.num_nodes; ++c) {
    order.push_back(
        uint32_t(std::lower_bound(inner.begin(), inner.end(), std::pair(c, int64_t(-1))) - inner.begin()));
  }
  for (size_t i = 0; i < inner.size(); ++i) {
    order[i] = uint32_t(inner[i].first);
    order[size_t(edges.count) + i] = uint32_t(inner[i].second);
  }
  return order;
}

inline PlainEdges plain_undirected(const Edges& edges) {
  std::vector<std::pair<int64_t, int64_t>> renamed;
  for (int64_t e = 0; e < edges.count; ++e) renamed.push_back(std::minmax(edges.row[e], edges.col[e]));
  return plain_distinct(renamed, std::vector<bool>(renamed.size(), true));
}

// Every edge once, sorted, and its reverse.
template <class Score>
Graph<Score> sorted_and_symmetric(const Graph<Score>& graph) {
  std::set<std::pair<int64_t, int64_t>> edges;
  for (size_t e = 0; e < graph.row.size(); ++e) {
    edges.emplace(graph.row[e], graph.col[e]);
    edges.emplace(graph.col[e], graph.row[e]);
  }
  Graph<Score> found{{}, {}, {}, graph.num_nodes};
  for (const auto& [row, col] : edges) {
    found.row.push_back(row);
    found.col.push_back(col);
  }
  return found;
}

// A batch of graphs after a level: clusters inside the graphs, the coarse edges, and room that is left over.
struct Levelled {
  Graph<float> graph, coarse;
  std::vector<int64_t> batch, cluster, representative, count;
  int64_t num_graphs;

  Progress progress() const {
    return {graph.edges(),  cluster.data(),        batch.data(), num_graphs,
            coarse.edges(), representative.data(), count.data()};
  }
};

// below(bound): a random number. Some nodes are in no graph, and most graphs are small.
template <class Below>
Levelled levelled(const Below& below, bool self_loops, bool symmetric) {
  Levelled made;
  made.num_graphs = 1 + below(9);
  const int64_t num_nodes = 1 + below(60);
  for (int64_t v = 0; v < num_nodes; ++v) made.batch.push_back(below(made.num_graphs + 1));
  made.graph.num_nodes = num_nodes;
  for (int64_t tries = below(4 * num_nodes); tries > 0; --tries) {
    const int64_t row = below(num_nodes), col = below(num_nodes);
    if (made.batch[size_t(row)] != made.batch[size_t(col)]) continue;
    made.graph.row.push_back(row);
    made.graph.col.push_back(col);
  }
  if (symmetric) made.graph = sorted_and_symmetric(made.graph);
  const int64_t kinds = 1 + below(5);
  std::map<std::pair<int64_t, int64_t>, int64_t> number;
  for (int64_t v = 0; v < num_nodes; ++v) {
    const auto [found, is_new] =
        number.emplace(std::pair(made.batch[size_t(v)], below(kinds)), number.size());
    if (is_new) made.representative.push_back(v);
    made.cluster.push_back(found->second);
  }
  const PlainEdges coarse = plain_coarsen(made.graph.edges(), made.cluster, self_loops);
  made.count = {int64_t(number.size()), int64_t(coarse.row.size())};
  made.coarse = {coarse.row, coarse.col, {}, 0};
  const int64_t room = below(3);
  made.representative.resize(number.size() + size_t(room), -1);
  made.coarse.row.resize(coarse.row.size() + size_t(room), -1);
  made.coarse.col.resize(coarse.col.size() + size_t(room), -1);
  made.coarse.num_nodes = int64_t(made.representative.size());
  return made;
}

struct PlainProgress {
  std::vector<int64_t> sizes, shrinks, goes_on;
  friend bool operator==(const PlainProgress&, const PlainProgress&) = default;
};

inline PlainProgress plain_progress(const Levelled& made) {
  const size_t graphs = size_t(made.num_graphs), coarse_edges = size_t(made.count[1]);
  PlainProgress plain{std::vector<int64_t>(kNumProgressSizes), std::vector<int64_t>(graphs + 1),
                      std::vector<int64_t>(graphs + 1)};  // the last graph is none
  const auto graph_of = [&](int64_t c) { return size_t(made.batch[size_t(made.representative[size_t(c)])]); };
  std::vector<size_t> edge_graph;
  for (size_t e = 0; e < made.graph.row.size(); ++e) {
    const size_t row = size_t(made.graph.row[e]), col = size_t(made.graph.col[e]);
    edge_graph.push_back(size_t(made.batch[row]));
    if (row != col && made.cluster[row] == made.cluster[col]) plain.shrinks[edge_graph.back()] = 1;
  }
  plain.shrinks[graphs] = 0;
  std::set<std::pair<int64_t, int64_t>> edges;
  for (size_t e = 0; e < coarse_edges; ++e) {
    const int64_t row = made.coarse.row[e], col = made.coarse.col[e];
    edges.emplace(row, col);
    if (row != col && plain.shrinks[graph_of(row)]) plain.goes_on[graph_of(row)] = 1;
  }
  for (const int64_t graph : made.batch) plain.sizes[kNodes] += plain.shrinks[size_t(graph)];
  for (const size_t graph : edge_graph) plain.sizes[kEdges] += plain.shrinks[graph];
  for (int64_t c = 0; c < made.count[0]; ++c) {
    plain.sizes[kClusters] += plain.shrinks[graph_of(c)];
    plain.sizes[kClustersOn] += plain.goes_on[graph_of(c)];
  }
  for (const auto& [row, col] : edges) {
    plain.sizes[kCoarseEdges] += plain.shrinks[graph_of(row)];
    if (!plain.goes_on[graph_of(row)]) continue;
    ++plain.sizes[kCoarseEdgesOn];
    plain.sizes[kLoopsOn] += row == col;
    plain.sizes[kOneWayOn] += !edges.count({col, row});
  }
  plain.sizes[kAllClusters] = made.count[0];
  plain.sizes[kAllCoarseEdges] = made.count[1];
  plain.shrinks.resize(graphs);
  plain.goes_on.resize(graphs);
  return plain;
}

// start plus the terms, in order; more terms than a piece are added piece by piece, and so are the pieces.
constexpr size_t kOnePiece = SIZE_MAX;
template <class Value>
Value plain_sum(Value start, std::vector<Value> terms, size_t piece) {
  while (terms.size() > piece) {
    std::vector<Value> sums;
    for (size_t i = 0; i < terms.size(); ++i) {
      if (i % piece == 0) {
        sums.push_back(terms[i]);
      } else {
        sums.back() += terms[i];
      }
    }
    terms = std::move(sums);
  }
  for (const Value term : terms) start += term;
  return start;
}

// Adds the terms of every cell to it.
template <class Value>
void plain_sums(const std::vector<std::vector<Value>>& terms, size_t piece, std::vector<Value>& out) {
  for (size_t at = 0; at < out.size(); ++at) out[at] = plain_sum(out[at], terms[at], piece);
}

// out[cluster[i]] += x[i].
template <class T>
void plain_accumulate(const std::vector<int64_t>& cluster, const std::vector<T>& x, int64_t width,
                      std::vector<Sum<T>>& out, size_t piece = kOnePiece) {
  std::vector<std::vector<Sum<T>>> terms(out.size());
  for (size_t i = 0; i < cluster.size(); ++i) {
    if (cluster[i] < 0) continue;
    for (int64_t k = 0; k < width; ++k) {
      terms[size_t(cluster[i] * width + k)].push_back(Sum<T>(x[i * size_t(width) + size_t(k)]));
    }
  }
  plain_sums(terms, piece, out);
}

inline std::vector<int64_t> plain_sizes(const std::vector<int64_t>& cluster, int64_t num_clusters) {
  std::vector<int64_t> sizes(size_t(num_clusters), 0);
  for (const int64_t c : cluster) {
    if (c >= 0) ++sizes[size_t(c)];
  }
  return sizes;
}

// The maxima, and for each the first row that reaches it (-1 without rows). NaN is the highest.
template <class T>
std::pair<std::vector<T>, std::vector<int64_t>> plain_maximum(const std::vector<int64_t>& cluster,
                                                              const std::vector<T>& x, int64_t width,
                                                              int64_t num_clusters) {
  std::vector<T> best(size_t(num_clusters * width), T(0));
  std::vector<int64_t> first(best.size(), -1);
  for (size_t i = 0; i < cluster.size(); ++i) {
    for (int64_t k = 0; cluster[i] >= 0 && k < width; ++k) {
      const size_t at = size_t(cluster[i] * width + k), from = i * size_t(width) + size_t(k);
      const Sum<T> value = Sum<T>(x[from]), highest = Sum<T>(best[at]);
      const bool higher = value > highest || (std::isnan(value) && !std::isnan(highest));
      if (first[at] < 0 || higher) best[at] = x[from], first[at] = int64_t(i);
    }
  }
  return {best, first};
}

template <class T>
struct PlainMask {
  std::vector<T> total;
  std::vector<int64_t> count;
};

// takes_part: of every edge, or null: all do.
template <class T>
PlainMask<T> plain_mask(const Edges& edges, const std::vector<T>& scores, const std::vector<int64_t>& cluster,
                        int64_t num_clusters, const bool* takes_part, size_t piece = kOnePiece) {
  std::vector<Sum<T>> sum(size_t(num_clusters), 0);
  std::vector<std::vector<Sum<T>>> terms(sum.size());
  PlainMask<T> plain{{}, std::vector<int64_t>(size_t(num_clusters), 0)};
  for (int64_t e = 0; e < edges.count; ++e) {
    const int64_t c = cluster[size_t(edges.row[e])];
    if ((takes_part && !takes_part[e]) || c != cluster[size_t(edges.col[e])]) continue;
    terms[size_t(c)].push_back(Sum<T>(scores[size_t(e)]));
    ++plain.count[size_t(c)];
  }
  plain_sums(terms, piece, sum);
  for (size_t c = 0; c < sum.size(); ++c) {
    plain.total.push_back(plain.count[c] == 0 ? T(1) : T(sum[c]));
    plain.count[c] = std::max<int64_t>(plain.count[c], 1);
  }
  return plain;
}

// Adds g(p, k) times the other node's features to both ends of every pair, in order.
template <class T, class Gradient>
void plain_both_ends(const std::vector<int64_t>& first, const std::vector<int64_t>& second,
                     const std::vector<T>& h, int64_t width, const Gradient& g, std::vector<Sum<T>>& grad_h,
                     size_t piece = kOnePiece) {
  std::vector<std::vector<Sum<T>>> terms(grad_h.size());
  for (size_t p = 0; p < first.size(); ++p) {
    for (int64_t k = 0; k < width; ++k) {
      const size_t i = size_t(first[p] * width + k), j = size_t(second[p] * width + k);
      terms[i].push_back(g(int64_t(p), k) * Sum<T>(h[j]));
      terms[j].push_back(g(int64_t(p), k) * Sum<T>(h[i]));
    }
  }
  plain_sums(terms, piece, grad_h);
}

// Bit equality, which -0 == +0 and NaN != NaN are not.
template <class T>
bool same_bits(const T* a, const std::vector<T>& b) {
  return b.empty() || std::memcmp(a, b.data(), b.size() * sizeof(T)) == 0;
}

// What becomes of the values under dropout, element by element; written down apart from csrc/core/random.h.
template <class T>
std::vector<T> plain_dropout(const std::vector<T>& x, uint64_t seed, uint64_t first, int64_t dropped,
                             Sum<T> scale, bool relu) {
  std::vector<T> out;
  for (uint64_t place = first; place < first + x.size(); ++place) {
    uint64_t state = seed;
    state += (place / 4) * 0x9e3779b97f4a7c15u;  // as often as the generator was asked before
    uint64_t z = (state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    z = z ^ (z >> 31);
    const int64_t bits = int64_t(z >> (16 * (place % 4)) & 0xffff);
    const Sum<T> value = Sum<T>(x[place - first]);
    const Sum<T> kept = bits < dropped ? Sum<T>(0) : scale;
    out.push_back(T((relu && value < Sum<T>(0) ? Sum<T>(0) : value) * kept));
  }
  return out;
}

}  // namespace gpn::test
