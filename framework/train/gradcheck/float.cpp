#include <xtape/framework/train/gradcheck/float.hpp>

#include <algorithm>
#include <cmath>
#include <limits>

#include <xtape/framework/base/random.hpp>
#include <xtape/framework/tape/expr.hpp>
#include <xtape/framework/train/gradcheck/checked.hpp>

namespace xtape::detail {
namespace {

constexpr std::uint64_t float_projection_stream = 1 << 20, move_stream = 1 << 23;

template <class T>
using Tensors = std::vector<std::vector<T>>;

/// The numbers that the function depends on, inputs first.
template <class T>
Tensors<T> numbers_of(const Tensors<float>& inputs, const ParameterList<T>& parameters) {
  Tensors<T> numbers;
  for (const auto& x : inputs) numbers.emplace_back(x.begin(), x.end());
  for (const auto& [name, p] : parameters) numbers.emplace_back(p.data(), p.data() + p.size());
  return numbers;
}

template <class T>
void set(ParameterList<T>& parameters, const Tensors<T>& numbers, std::size_t inputs) {
  for (std::size_t i = 0; i < parameters.size(); ++i)
    std::copy(numbers[inputs + i].begin(), numbers[inputs + i].end(), parameters[i].parameter.write_data());
}

/// Parameters that are put back, and left without gradients.
template <class T>
struct Borrowed {
  ParameterList<T> list;
  Tensors<T> before;
  explicit Borrowed(const ParameterList<T>& parameters)
      : list(each_once(parameters)), before(numbers_of<T>({}, list)) {}
  Borrowed(const Borrowed&) = delete;
  Borrowed& operator=(const Borrowed&) = delete;
  ~Borrowed() {
    set(list, before, 0);
    zero_grad(list);
  }
};

/// Gradients of a random projection of the output at the given numbers; its weights have few digits, so that they are
/// the same in float and double.
template <class T>
Tensors<T> gradients(const FunctionOf<T>& f, const std::vector<Shape>& shapes, ParameterList<T>& parameters,
                     const Tensors<T>& numbers, std::uint64_t seed) {
  set(parameters, numbers, shapes.size());
  zero_grad(parameters);
  Tape<T> tape;
  tape.set_step(0);
  std::vector<Var<T>> x;
  for (std::size_t i = 0; i < shapes.size(); ++i) x.push_back(tape.input(adapt(numbers[i].data(), shapes[i]), true));
  const Var<T> y = f(tape, x);
  const std::vector<double> normal = normal_values(y.size(), seed, float_projection_stream);
  std::vector<T> weights;
  for (const double w : normal) weights.push_back(static_cast<T>(std::round(w * 1024) / 1024));
  if (y.requires_grad()) tape.backward(y, adapt(weights.data(), y.shape()));
  Tensors<T> result;
  for (auto& v : x) result.emplace_back(v.grad().data(), v.grad().data() + v.size());
  for (auto& entry : parameters)
    result.emplace_back(entry.parameter.grad_data(), entry.parameter.grad_data() + entry.parameter.size());
  return result;
}

/// Every number one unit in its last place up or down, or as it is.
Tensors<float> moved(Tensors<float> numbers, std::uint64_t seed, std::size_t run) {
  Rng rng(seed, (move_stream + run) << 36);
  constexpr float infinity = std::numeric_limits<float>::infinity();
  for (auto& tensor : numbers)
    for (float& x : tensor) {
      const std::uint64_t choice = rng.below(3);
      if (choice > 0) x = std::nextafter(x, choice == 1 ? infinity : -infinity);
    }
  return numbers;
}

/// Mean squares of what the gradients of the runs differ by from those at the numbers themselves.
Tensors<double> spread(const FloatSubject& s, ParameterList<float>& parameters, const Tensors<float>& numbers,
                       const Tensors<float>& middle, std::uint64_t seed, std::size_t runs) {
  Tensors<double> squares;
  for (const auto& tensor : middle) squares.emplace_back(tensor.size());
  for (std::size_t run = 0; run < runs; ++run) {
    const auto other = gradients(s.in_float, s.shapes, parameters, moved(numbers, seed, run), seed);
    for (std::size_t i = 0; i < other.size(); ++i)
      for (std::size_t k = 0; k < other[i].size(); ++k) {
        const double difference = static_cast<double>(other[i][k]) - static_cast<double>(middle[i][k]);
        squares[i][k] += difference * difference / static_cast<double>(runs);
      }
  }
  return squares;
}

/// Judges one tensor. `largest` is the size of the gradient of the tensor that has the largest.
void judge_tensor(const std::vector<float>& in_float, const std::vector<double>& in_double,
                  const std::vector<double>& squares, double largest, TensorReport& report) {
  const double size = root_mean_square(in_double);
  double mean_square = 0;
  for (const double square : squares)
    if (std::isfinite(square)) mean_square += square / static_cast<double>(squares.size());
  Reason shown = Reason::ok;
  for (std::size_t k = 0; k < in_float.size(); ++k) {
    const double unit = std::numeric_limits<float>::epsilon() * std::max(std::abs(in_double[k]), size);
    const CheckedElement here{.place = place_of(k, report.shape),
                              .analytic = in_float[k],
                              .numeric = in_double[k],
                              .step = 0,
                              .bar = 6 * std::sqrt(std::max(squares[k], mean_square)) + 8 * unit};
    const double error = std::abs(here.analytic - here.numeric);
    const bool narrow = here.bar <= std::max(1e-2 * std::max(std::abs(here.numeric), size), 1e-4 * largest);
    const Reason reason = !std::isfinite(error)     ? Reason::non_finite
                          : !(error <= here.bar)    ? Reason::mismatch
                          : narrow || here.bar == 0 ? Reason::ok
                                                    : Reason::inconclusive;
    ++report.checked;
    report.inconclusive += reason == Reason::inconclusive;
    report.reason = std::max(report.reason, reason);
    if (k > 0 && (reason < shown || (reason == shown && !(here.ratio() > report.worst.ratio())))) continue;
    shown = reason;
    report.worst = here;
  }
  if (report.reason == Reason::inconclusive && 100 * report.inconclusive <= report.checked) report.reason = Reason::ok;
  const bool none = std::all_of(in_float.begin(), in_float.end(), [](float g) { return g == 0; });
  if (report.reason == Reason::mismatch && none) report.reason = Reason::no_gradient;
}

void check(const FloatSubject& s, Borrowed<float>& narrow, Borrowed<double>& wide, std::uint64_t seed, std::size_t runs,
           GradcheckReport& report) {
  Tensors<float> inputs;
  for (std::size_t i = 0; i < s.shapes.size(); ++i) {
    const auto values = normal_values(s.shapes[i].size(), seed, i);
    inputs.emplace_back(values.begin(), values.end());
  }
  const Tensors<float> numbers = numbers_of<float>(inputs, narrow.list);
  Tensors<double> same;  // in double
  for (const auto& tensor : numbers) same.emplace_back(tensor.begin(), tensor.end());
  const auto in_double = gradients(s.in_double, s.shapes, wide.list, same, seed);
  const auto in_float = gradients(s.in_float, s.shapes, narrow.list, numbers, seed);
  const auto squares = spread(s, narrow.list, numbers, in_float, seed, runs);
  double largest = 0;
  for (const auto& tensor : in_double) largest = std::max(largest, root_mean_square(tensor));
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    const bool is_input = i < s.shapes.size();
    TensorReport& tensor = report.tensors.emplace_back();
    tensor.name = is_input ? fmt::format("input {}", i) : narrow.list[i - s.shapes.size()].name;
    tensor.shape = is_input ? s.shapes[i] : narrow.list[i - s.shapes.size()].parameter.shape();
    judge_tensor(in_float[i], in_double[i], squares[i], largest, tensor);
  }
}

}  // namespace

GradcheckReport run_gradcheck_float(const FloatSubject& subject, std::uint64_t seed, std::size_t runs) {
  Borrowed<float> narrow(subject.parameters);
  Borrowed<double> wide(subject.parameters_in_double);
  require(narrow.list.size() == wide.list.size(),
          "[gradcheck_float] expected as many parameters in double as in float, {}, got {}", narrow.list.size(),
          wide.list.size());
  for (std::size_t i = 0; i < narrow.list.size(); ++i) {
    const auto& a = narrow.list[i];
    const auto& b = wide.list[i];
    require(a.name == b.name && a.parameter.shape() == b.parameter.shape(),
            "[gradcheck_float] expected the parameter {} {} in double, got {} {}", a.name, a.parameter.shape(), b.name,
            b.parameter.shape());
  }
  GradcheckReport report;
  try {
    check(subject, narrow, wide, seed, runs, report);
  } catch (const std::exception& error) {
    report.problem = fmt::format("the function threw: {}", error.what());
  }
  sort_worst_first(report);
  return report;
}

}  // namespace xtape::detail
