#include <xtape/framework/train/gradients.hpp>

#include <algorithm>
#include <cmath>

#include <xtape/framework/base/parallel.hpp>
#include <xtape/framework/kernels/optimizer.hpp>
#include <xtape/framework/train/gradient_pieces.hpp>

namespace xtape {

template <class T>
std::vector<detail::GradientPiece<T>>& detail::gradient_pieces(const ParameterList<T>& list) {
  constexpr std::size_t most = 8192;
  thread_local std::vector<GradientPiece<T>> pieces;
  pieces.clear();
  for (std::size_t i = 0; i < list.size(); ++i) {
    Parameter<T> parameter = list[i].parameter.share();
    if (!parameter.has_grad() || parameter.frozen()) continue;
    T* const data = parameter.grad_data();
    const auto listed = [&](const GradientPiece<T>& piece) { return piece.data == data; };
    if (std::any_of(pieces.begin(), pieces.end(), listed)) continue;
    for (std::size_t begin = 0; begin < parameter.size(); begin += most)
      pieces.push_back({i, begin, std::min(most, parameter.size() - begin), data + begin, 0});
  }
  return pieces;
}

template <class T>
double detail::sum_of_squares(std::vector<GradientPiece<T>>& pieces) {
  parallel_for(pieces.size(), [&](std::size_t i, std::size_t) {
    pieces[i].squares = kernels::sum_of_squares(pieces[i].data, pieces[i].size);
  });
  double sum = 0;
  for (const GradientPiece<T>& piece : pieces) sum += piece.squares;
  return sum;
}

namespace {

template <class T>
void scale(const std::vector<detail::GradientPiece<T>>& pieces, double factor) {
  parallel_for(pieces.size(), [&](std::size_t i, std::size_t) {
    kernels::scale_in_place(pieces[i].data, pieces[i].size, static_cast<T>(factor));
  });
}

}  // namespace

template <class T>
double grad_norm(const ParameterList<T>& list) {
  return std::sqrt(detail::sum_of_squares(detail::gradient_pieces(list)));
}

double clip_coefficient(double norm, double max) {
  return std::isfinite(norm) ? std::min(1.0, max / (norm + 1e-6)) : 1;
}

template <class T>
double clip_grad_norm(const ParameterList<T>& list, double max) {
  require(max >= 0, "[clip_grad_norm] max must not be negative, got {}", max);
  auto& pieces = detail::gradient_pieces(list);
  const double norm = std::sqrt(detail::sum_of_squares(pieces)), coefficient = clip_coefficient(norm, max);
  if (coefficient < 1) scale(pieces, coefficient);
  return norm;
}

template <class T>
void divide_grad(const ParameterList<T>& list, std::size_t count) {
  if (count > 0) scale(detail::gradient_pieces(list), 1 / static_cast<double>(count));
}

template std::vector<detail::GradientPiece<float>>& detail::gradient_pieces(const ParameterList<float>&);
template std::vector<detail::GradientPiece<double>>& detail::gradient_pieces(const ParameterList<double>&);
template double detail::sum_of_squares(std::vector<GradientPiece<float>>&);
template double detail::sum_of_squares(std::vector<GradientPiece<double>>&);
template double grad_norm(const ParameterList<float>&);
template double grad_norm(const ParameterList<double>&);
template double clip_grad_norm(const ParameterList<float>&, double);
template double clip_grad_norm(const ParameterList<double>&, double);
template void divide_grad(const ParameterList<float>&, std::size_t);
template void divide_grad(const ParameterList<double>&, std::size_t);

}  // namespace xtape
