#include <xtape/framework/train/gradcheck/directions.hpp>

#include <algorithm>
#include <cmath>
#include <memory>

#include <xtape/framework/base/random.hpp>

namespace xtape::detail {
namespace {

constexpr std::uint64_t direction_stream = 1 << 22;

/// Parts of tensors, as they are when they are added, each with its direction.
class Moved {
 public:
  explicit Moved(Checked& checked) : checked_(checked) {}
  void add(std::size_t i, const std::vector<double>& direction, std::size_t begin, std::size_t end) {
    const double* x = checked_.data(i);
    parts_.push_back({i, begin, std::vector<double>(x + begin, x + end), direction});
  }
  /// The function with all of them moved by t; they are put back, also if it throws.
  Pair<Projected> by(double t) {
    struct PutBack {
      Moved& moved;
      ~PutBack() {
        for (const Part& part : moved.parts_)
          std::copy(part.before.begin(), part.before.end(), moved.checked_.write(part.i) + part.begin);
      }
    };
    const PutBack put_back{*this};
    for (const Part& part : parts_) {
      double* x = checked_.write(part.i) + part.begin;
      const double* direction = part.direction.data() + part.begin;
      for (std::size_t k = 0; k < part.before.size(); ++k) x[k] = part.before[k] + t * direction[k];
    }
    return checked_.project();
  }

 private:
  struct Part {
    std::size_t i, begin;
    std::vector<double> before;
    const std::vector<double>& direction;
  };
  Checked& checked_;
  std::vector<Part> parts_;
};

Line line_of(std::shared_ptr<Moved> moved) {
  return [moved = std::move(moved)](double t, double& reached) {
    reached = t;
    return moved->by(t);
  };
}

}  // namespace

std::vector<double> random_direction(const Checked& checked, std::size_t i, std::uint64_t number) {
  Rng rng(checked.seed(), (direction_stream + 1000 * i + number) << 36);
  std::vector<double> direction(checked.size(i));
  std::uint64_t bits = 0;
  for (std::size_t k = 0; k < direction.size(); ++k, bits >>= 1) {
    if (k % 64 == 0) bits = rng.bits();
    direction[k] = (bits & 1) != 0 ? checked.scale(i, k) : -checked.scale(i, k);
  }
  return direction;
}

std::vector<std::vector<double>> random_directions(const Checked& checked, std::uint64_t number) {
  std::vector<std::vector<double>> directions;
  for (std::size_t i = 0; i < checked.count(); ++i) directions.push_back(random_direction(checked, i, number));
  return directions;
}

Line along(Checked& checked, std::size_t i, const std::vector<double>& direction, std::size_t begin, std::size_t end) {
  const auto moved = std::make_shared<Moved>(checked);
  moved->add(i, direction, begin, end);
  return line_of(moved);
}

Line along_all(Checked& checked, const std::vector<std::vector<double>>& directions) {
  const auto moved = std::make_shared<Moved>(checked);
  for (std::size_t i = 0; i < directions.size(); ++i) moved->add(i, directions[i], 0, directions[i].size());
  return line_of(moved);
}

void Sum::add(const std::vector<double>& gradient, const std::vector<double>& direction) {
  for (std::size_t k = 0; k < direction.size(); ++k) {
    const double term = gradient[k] * direction[k];
    sum += term;
    squares += term * term;
  }
  count += direction.size();
}

Claim Sum::claim(const Projected& middle, double least) const {
  const double all = std::sqrt(squares), size = std::max(all, 1e-5 * middle.magnitude);
  // A thousandth of one element is ten bars.
  const double relative = std::clamp(1e-4 / std::sqrt(static_cast<double>(count)), least, 1e-5);
  return {.analytic = sum,
          .wanted = std::max(relative * all, 1e-10 * middle.magnitude),
          .tolerated = 1e-4 * size,
          .relative = relative};
}

}  // namespace xtape::detail
