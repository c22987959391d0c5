#include <xtape/framework/train/moving_average.hpp>

#include <algorithm>

#include <xtape/framework/kernels/optimizer.hpp>

namespace xtape {

template <class T>
ExponentialMovingAverage<T>::ExponentialMovingAverage(const ParameterList<T>& parameters, double decay)
    : parameters_(each_once(parameters)), decay_(decay) {
  require(decay >= 0 && decay < 1, "[ExponentialMovingAverage] decay must be in [0, 1), got {}", decay);
  for (const auto& [name, parameter] : parameters_) {
    state_.emplace_back("average." + name, Parameter<T>(parameter.shape(), parameter.role()));
    std::copy_n(parameter.data(), parameter.size(), state_.back().parameter.write_data());
  }
}

template <class T>
void ExponentialMovingAverage<T>::update() {
  require(*uses_ == 0,
          "[ExponentialMovingAverage] expected the trained weights, got the averages themselves: update() "
          "has to wait until the guard of use() is gone");
  for (std::size_t i = 0; i < parameters_.size(); ++i)
    kernels::approach<T>(1 - decay_, parameters_[i].parameter.size(), parameters_[i].parameter.data(),
                         state_[i].parameter.write_data());
}

template <class T>
ExponentialMovingAverage<T>::Use::Use(ExponentialMovingAverage& average)
    : parameters_(average.parameters_), uses_(average.uses_) {
  require(*uses_ == 0, "[ExponentialMovingAverage] the averages are in use already");
  for (const auto& [name, parameter] : parameters_)
    trained_.emplace_back(parameter.data(), parameter.data() + parameter.size());
  for (std::size_t i = 0; i < parameters_.size(); ++i)  // nothing throws from here on
    std::copy_n(average.state_[i].parameter.data(), parameters_[i].parameter.size(),
                parameters_[i].parameter.write_data());
  ++*uses_;
}

template <class T>
ExponentialMovingAverage<T>::Use::~Use() {
  for (std::size_t i = 0; i < parameters_.size(); ++i)
    std::copy(trained_[i].begin(), trained_[i].end(), parameters_[i].parameter.write_data());
  --*uses_;
}

template class ExponentialMovingAverage<float>;
template class ExponentialMovingAverage<double>;

}  // namespace xtape
