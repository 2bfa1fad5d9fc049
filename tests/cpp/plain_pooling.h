// Plain solvers of the pooling operators, to compare kernels with.
#pragma once

#include <cmath>
#include <cstring>
#include <map>
#include <utility>

#include "check.h"
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

inline PlainEdges plain_coarsen(const Edges& edges, const std::vector<int64_t>& cluster, bool self_loops) {
  std::vector<std::pair<int64_t, int64_t>> renamed;
  std::vector<bool> kept;
  for (int64_t e = 0; e < edges.count; ++e) {
    renamed.emplace_back(cluster[size_t(edges.row[e])], cluster[size_t(edges.col[e])]);
    kept.push_back(self_loops || renamed.back().first != renamed.back().second);
  }
  return plain_distinct(renamed, kept);
}

inline PlainEdges plain_undirected(const Edges& edges) {
  std::vector<std::pair<int64_t, int64_t>> renamed;
  for (int64_t e = 0; e < edges.count; ++e) renamed.push_back(std::minmax(edges.row[e], edges.col[e]));
  return plain_distinct(renamed, std::vector<bool>(renamed.size(), true));
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

template <class T>
PlainMask<T> plain_mask(const Edges& edges, const std::vector<T>& scores, const std::vector<int64_t>& cluster,
                        int64_t num_clusters, size_t piece = kOnePiece) {
  std::vector<Sum<T>> sum(size_t(num_clusters), 0);
  std::vector<std::vector<Sum<T>>> terms(sum.size());
  PlainMask<T> plain{{}, std::vector<int64_t>(size_t(num_clusters), 0)};
  for (int64_t e = 0; e < edges.count; ++e) {
    const int64_t c = cluster[size_t(edges.row[e])];
    if (c != cluster[size_t(edges.col[e])]) continue;
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
