// Matrix products of the CPU kernels: torch's own, on raw pointers.
#pragma once

#include "../ops/host.h"

namespace gpn::cpu {

// Products with the weights of square layers. They run in `type`; rows and gradients are of another type
// where that is half precision.
template <class W>
class Products {
 public:
  // weights, grads: [width, width] each, contiguous; the former of `type`, the latter of W.
  Products(const std::vector<Tensor>& weights, const std::vector<Tensor>& grads, ScalarType type)
      : weights_(weights), grads_(grads), type_(type), width_(weights.front().size(0)) {
    for (Tensor grad : grads) torch::stable::zero_(grad);
    if (!grads.empty()) sum_ = new_empty(grads.front(), {width_, width_}, kWide);
  }

  void rows(int64_t layer, const W* z, int64_t count, W* out) {
    multiply(view(z, count, width_), weight(layer, true), view(out, count, width_));
  }
  void rows_backward(int64_t layer, const W* grad, int64_t count, W* out) {
    multiply(view(grad, count, width_), weight(layer, false), view(out, count, width_));
  }
  void weight_backward(int64_t layer, const W* grad, const W* z, int64_t count) {
    multiply(view(grad, width_, count, 1, width_), view(z, count, width_), sum_);
    const W* sum = sum_.template const_data_ptr<W>();
    W* to = grads_[size_t(layer)].template mutable_data_ptr<W>();
    for (int64_t i = 0; i < width_ * width_; ++i) to[i] += sum[i];
  }

 private:
  static constexpr ScalarType kWide = std::is_same_v<W, double> ? ScalarType::Double : ScalarType::Float;

  static Tensor matrix(const void* data, ScalarType type, int64_t rows, int64_t columns, int64_t row_stride,
                       int64_t column_stride) {
    const int64_t sizes[] = {rows, columns}, strides[] = {row_stride, column_stride};
    return torch::stable::from_blob(const_cast<void*>(data), {sizes, 2}, {strides, 2},
                                    torch::stable::Device(torch::headeronly::DeviceType::CPU), type);
  }
  Tensor view(const W* data, int64_t rows, int64_t columns, int64_t row_stride = 0,
              int64_t column_stride = 1) const {
    return matrix(data, kWide, rows, columns, row_stride ? row_stride : columns, column_stride);
  }
  // Not the tensor itself, which may require a gradient.
  Tensor weight(int64_t layer, bool transposed) const {
    return matrix(weights_[size_t(layer)].const_data_ptr(), type_, width_, width_, transposed ? 1 : width_,
                  transposed ? width_ : 1);
  }

  // mm.out, because autocast leaves it alone.
  static void multiply_into(const Tensor& a, const Tensor& b, const Tensor& out) {
    using torch::stable::detail::from;
    StableIValue stack[] = {from(a), from(b), from(out)};
    STABLE_TORCH_ERROR_CODE_CHECK(torch_call_dispatcher("aten::mm", "out", stack, TORCH_ABI_VERSION));
    torch::stable::detail::to<Tensor>(stack[0]);  // frees what the call returns
  }

  void multiply(const Tensor& a, const Tensor& b, Tensor out) const {
    if (type_ == kWide) return multiply_into(a, b, out);
    const auto narrow = [this](const Tensor& x) {
      return x.scalar_type() == type_ ? x : torch::stable::to(x, type_);
    };
    const Tensor product = new_empty(out, {out.size(0), out.size(1)}, type_);
    multiply_into(narrow(a), narrow(b), product);
    torch::stable::copy_(out, product);
  }

  const std::vector<Tensor>& weights_;
  const std::vector<Tensor>& grads_;
  ScalarType type_;
  int64_t width_;
  Tensor sum_;
};

}  // namespace gpn::cpu
