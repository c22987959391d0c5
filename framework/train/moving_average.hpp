#pragma once
// Averages of the weights over the steps, which often evaluate better than the weights themselves.

#include <memory>

#include <xtape/framework/nn/parameter_list.hpp>

namespace xtape {

/// The exponential moving average of each parameter (PyTorch's AveragedModel with this
/// average), which begins at the values that the parameters have when it is made:
///
///   ExponentialMovingAverage<float> average(parameters<float>(model), 0.999);
///   optimizer.step();
///   average.update();                    // after every step
///   {
///     const auto averaged = average.use();
///     evaluate(model);                   // with the averages as its weights
///   }                                    // the trained weights are back
///
/// A parameter that is listed twice has one average, under its first name; that of a frozen parameter stays with it.
template <class T>
class ExponentialMovingAverage {
 public:
  class Use;

  /// The decay is in [0, 1): each update keeps this much of the average.
  explicit ExponentialMovingAverage(const ParameterList<T>& parameters, double decay = 0.999);

  /// average = decay average + (1 - decay) parameter. An Error while the averages are in use.
  void update();
  /// Puts the averages in the parameters' place while the guard lives; its end gives the trained weights back bit for
  /// bit, also after an exception. Counts as a change of the parameters. An Error while another guard lives.
  [[nodiscard]] Use use() { return Use(*this); }
  /// The averages by name ("average.NAME"): what a resume needs, also while they are in use.
  ParameterList<T>& state() { return state_; }
  double decay() const { return decay_; }

 private:
  ParameterList<T> parameters_, state_;
  double decay_;
  std::shared_ptr<int> uses_ = std::make_shared<int>(0);  // live guards; they may outlive a move of this
};

/// A guard: while it lives, the parameters hold their averages.
template <class T>
class ExponentialMovingAverage<T>::Use {
 public:
  explicit Use(ExponentialMovingAverage& average);
  Use(const Use&) = delete;
  Use& operator=(const Use&) = delete;
  ~Use();

 private:
  ParameterList<T> parameters_;
  std::vector<std::vector<T>> trained_;
  std::shared_ptr<int> uses_;
};

}  // namespace xtape
