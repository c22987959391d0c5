#include <xtape/framework/train/gradcheck/difference.hpp>

#include <algorithm>
#include <cmath>

namespace xtape::detail {
namespace {

constexpr double epsilon = std::numeric_limits<double>::epsilon();
/// A bar allows for this multiple of the noise that was measured: of a few samples the largest.
constexpr double safety = 4;

/// The least that rounding does to a value of f.
double rounding(const Projected& f) { return 4 * epsilon * f.magnitude; }
/// Changes of f that are smaller than this part of a unit in the last place of all of it are not looked at.
constexpr double resolution = 1e-3;

/// Differences of one projection over one step.
struct Sides {
  double step = 0, central = 0, above = 0, below = 0, noise = 0;
  double jump() const { return above - below; }
};

Pair<Sides> sides(const Line& f, double step, const Middle& middle) {
  double up = 0, down = 0;
  const Pair<Projected> high = f(step, up), low = f(-step, down);
  Pair<Sides> result;
  for (std::size_t p = 0; p < projections; ++p) {
    const double at = middle.at[p].value;
    result[p] = {
        .step = (up - down) / 2,
        .central = (high[p].value - low[p].value) / (up - down),
        .above = (high[p].value - at) / up,
        .below = (low[p].value - at) / down,
        .noise = std::max({middle.noise[p], rounding(high[p]), rounding(low[p]), resolution * rounding(middle.at[p])})};
  }
  return result;
}

// ---- a table of Ridders

constexpr double shrink = 1.4;
constexpr std::size_t most_levels = 7;
/// What a table's value may be off by, in units of its last changes: where the second derivative jumps, as that of
/// relu(x)^2 at 0, differences err by a multiple of h, and it is 1.7.
constexpr double distrust = 3;

/// The table of one projection, a row for each step.
struct Table {
  std::array<Sides, most_levels> steps;
  std::array<std::array<double, most_levels>, most_levels> rows;
  std::array<double, most_levels> change;  // of the diagonal
  Derivative smooth, kinked;
  const Derivative& result() const { return kinked.kink ? kinked : smooth; }

  void add(std::size_t k, const Sides& s) {
    steps[k] = s;
    rows[k][0] = s.central;
    double factor = 1, amplified = 1;  // by extrapolation, of the noise in the differences
    for (std::size_t j = 1; j <= k; ++j) {
      factor *= shrink * shrink;
      rows[k][j] = rows[k][j - 1] + (rows[k][j - 1] - rows[k - 1][j - 1]) / (factor - 1);
      amplified *= (factor + 1) / (factor - 1);
    }
    if (k == 0) return;
    change[k] = std::max(std::abs(rows[k][k] - rows[k][k - 1]), std::abs(rows[k][k] - rows[k - 1][k - 1]));
    if (k == 1) return;
    const double noise = safety * amplified * s.noise / s.step;
    const double bar = distrust * std::max(change[k], change[k - 1]) + noise;
    if (bar < smooth.bar && regular(k))
      smooth = {.numeric = rows[k][k], .bar = bar, .noise = noise, .step = steps[0].step};
    look_for_kink(k);
  }

  /// False if the steps are so wide that f does something else there: if it levels off on both sides, or swings to and
  /// fro, its differences agree about nothing. With each step f has to change less, central differences have to draw
  /// nearer, and bends, the jumps times h, to fall like h^2.
  bool regular(std::size_t k) const {
    const auto moved = [&](std::size_t level) { return std::abs(steps[level].central - steps[level - 1].central); };
    const auto bend = [&](std::size_t level) { return std::abs(steps[level].jump()) * steps[level].step; };
    const auto change_of_f = [&](std::size_t level) {
      return (std::abs(steps[level].above) + std::abs(steps[level].below)) * steps[level].step;
    };
    const double noise = 2 * safety * steps[k].noise;
    for (std::size_t level = 1; level <= k; ++level)
      if (change_of_f(level) > change_of_f(level - 1) / 1.15 + noise) return false;
    return moved(k) <= 0.9 * moved(k - 1) + noise / steps[k].step && bend(k) <= bend(k - 1) / 1.6 + noise;
  }

  /// The one-sided slopes differ by j + h f'' + O(h^3): the first term stays as h shrinks.
  void look_for_kink(std::size_t k) {
    const auto extrapolated = [](double fine, double wide) { return (shrink * fine - wide) / (shrink - 1); };
    const Sides &s = steps[k], &before = steps[k - 1];
    const double jump = extrapolated(s.jump(), before.jump());
    const double jump_before = extrapolated(before.jump(), steps[k - 2].jump());
    const double noise = 8 * safety * s.noise / s.step;
    kinked = {};
    if (!(std::abs(jump - jump_before) < 0.25 * std::abs(jump) && std::abs(jump) > noise)) return;
    const double above = extrapolated(s.above, before.above), below = extrapolated(s.below, before.below);
    const double slack = std::abs(above - s.above) + std::abs(below - s.below) + noise;
    kinked = {.numeric = (above + below) / 2,
              .bar = std::abs(above - below) / 2 + slack,
              .noise = noise,
              .step = s.step,
              .kink = true,
              .below = below,
              .above = above,
              .slack = slack};
  }
};

bool narrow(const Derivative& d, const Claim& claim) {
  return d.bar <= std::max(claim.wanted, claim.relative * std::abs(d.numeric));
}
bool tolerable(const Derivative& d, const Claim& claim) {
  return d.bar <= std::max(claim.tolerated, 1e-4 * std::abs(d.numeric));
}
bool settled(const Derivative& d, const Claim& claim) {
  return !d.kink && std::isfinite(d.numeric) && narrow(d, claim);
}

/// Both tables from the step h down, to the level where they tell enough or get worse.
Pair<Derivative> ridders(const Line& f, double h, const Middle& middle, const Pair<Claim>& claims) {
  Pair<Table> tables;
  for (std::size_t k = 0; k < most_levels; ++k, h /= shrink) {
    const auto s = sides(f, h, middle);
    if (!std::isfinite(s[0].central) && !std::isfinite(s[1].central)) break;
    bool enough = k >= 2, worse = k >= 4;
    for (std::size_t p = 0; p < projections; ++p) {
      tables[p].add(k, s[p]);
      // What would refute the claim is looked at for longer.
      const Derivative& d = tables[p].result();
      enough = enough && settled(d, claims[p]) && (k >= 4 || d.allows(claims[p].analytic));
      worse = worse && !(tables[p].change[k] < 2 * tables[p].smooth.bar);
    }
    if (enough || worse) break;
  }
  return {tables[0].result(), tables[1].result()};
}

// ---- tables with ever narrower steps

/// The search for one projection.
struct Search {
  Claim claim;
  Derivative smooth = {};  // with the narrowest bar
  Derivative kinked = {};  // what still looks like a kink, with the least slack
  double noise = 0;        // in the last table
  bool done = false, noisy = false;

  /// Takes a table's result; true if it refutes the claim, which is for another table to confirm.
  bool take(const Derivative& d) {
    noise = d.noise;
    noisy = !d.kink && d.noise > 0.5 * d.bar && !narrow(d, claim);
    if (!std::isfinite(d.numeric + d.bar)) return false;
    if (d.kink) {
      if (!kinked.kink || d.slack < kinked.slack) kinked = d;
      return false;
    }
    if (tolerable(d, claim) && !d.allows(claim.analytic)) return true;
    if (d.bar < smooth.bar) smooth = d;
    if (tolerable(d, claim)) kinked = {};
    if (kinked.kink) choose_side(d);
    done = done || settled(smooth, claim);
    return false;
  }
  /// There is no kink within these narrow steps after all, but rounding leaves their derivative a wide bar. If only one
  /// of the slopes beside the kink lies in it, that slope is meant.
  void choose_side(const Derivative& d) {
    const auto fits = [&](double slope) { return std::abs(slope - d.numeric) <= d.bar + kinked.slack; };
    if (d.bar > 0.25 * std::abs(kinked.above - kinked.below) || fits(kinked.above) == fits(kinked.below)) return;
    const Derivative side{.numeric = fits(kinked.above) ? kinked.above : kinked.below,
                          .bar = kinked.slack,
                          .noise = kinked.noise,
                          .step = kinked.step};
    // Further kinks may lie between the wide step and this one: only a claim that fits neither is refuted.
    if (!tolerable(side, claim) || (d.allows(claim.analytic) && !side.allows(claim.analytic))) return;
    smooth = side;
    kinked = {};
    done = true;
  }
  /// A table refuted the claim; this is what another one says.
  void confirm(const Derivative& refuting, const Derivative& other) {
    if (other.kink || !std::isfinite(other.numeric + other.bar)) return;
    if (other.allows(claim.analytic)) {
      take(other);
    } else if (std::abs(other.numeric - refuting.numeric) <= other.bar + refuting.bar) {
      smooth = other.bar < refuting.bar ? other : refuting;
      kinked = {};
      done = true;
    }
  }
  /// True if narrower steps only add noise.
  bool exhausted(double narrower) const {
    return done || (!kinked.kink && tolerable(smooth, claim) && narrower * noise > smooth.bar);
  }
};

void search_at(const Line& f, double h, const Middle& middle, const Pair<Claim>& claims, Pair<Search>& searches) {
  const auto found = ridders(f, h, middle, claims);
  Pair<bool> refuted = {};
  for (std::size_t p = 0; p < projections; ++p)
    if (!searches[p].done) refuted[p] = searches[p].take(found[p]);
  if (!refuted[0] && !refuted[1]) return;
  const auto other = ridders(f, h / 4.3, middle, claims);
  for (std::size_t p = 0; p < projections; ++p)
    if (refuted[p]) searches[p].confirm(found[p], other[p]);
}

}  // namespace

bool Derivative::allows(double analytic) const { return std::abs(analytic - numeric) <= bar; }

Reason judge(const Derivative& derivative, const Claim& claim) {
  if (!std::isfinite(derivative.numeric) || !std::isfinite(claim.analytic)) return Reason::non_finite;
  if (!derivative.allows(claim.analytic)) return Reason::mismatch;
  if (derivative.kink) return Reason::kink;
  return tolerable(derivative, claim) ? Reason::ok : Reason::inconclusive;
}

Pair<double> measure_noise(const Line& f, double scale, const Pair<Projected>& middle) {
  const auto second_differences = [&](double move) {
    double up = 0, down = 0;
    const Pair<Projected> high = f(move * scale, up), low = f(-move * scale, down);
    Pair<double> result;
    for (std::size_t p = 0; p < projections; ++p)
      result[p] = (high[p].value - middle[p].value) + (low[p].value - middle[p].value);
    return result;
  };
  const auto shortest = second_differences(32 * epsilon);
  // What is rounded to coarse units on its way shows only in longer moves m. There the terms in m of a kink, and in m^2
  // of curvature, are extrapolated away.
  const auto wide = second_differences(1e-10), half = second_differences(0.5e-10),
             quarter = second_differences(0.25e-10);
  Pair<double> noise;
  for (std::size_t p = 0; p < projections; ++p) {
    noise[p] = rounding(middle[p]);
    for (const double found : {std::abs(shortest[p]), std::abs(wide[p] - 6 * half[p] + 8 * quarter[p]) / 8})
      if (std::isfinite(found)) noise[p] = std::max(noise[p], found);
  }
  return noise;
}

Pair<Derivative> first_difference(const Line& f, double h, const Middle& middle) {
  const auto wide = sides(f, h, middle), half = sides(f, h / 2, middle);
  Pair<Derivative> result;
  for (std::size_t p = 0; p < projections; ++p) {
    const double noise = 4 * safety * half[p].noise / wide[p].step;
    result[p] = {
        .numeric = (4 * half[p].central - wide[p].central) / 3,
        .bar = std::abs(half[p].central - wide[p].central) / 3 + std::abs(2 * half[p].jump() - wide[p].jump()) + noise,
        .noise = noise,
        .step = wide[p].step};
  }
  return result;
}

Differentiated differentiate(const Line& f, double h, const Middle& middle, const Pair<Claim>& claims) {
  constexpr double wide = 100, narrower = 8;
  constexpr int rungs = 9, rungs_at_kinks = 12, rungs_up = 6;
  const auto first = first_difference(f, h, middle);
  Pair<Search> searches = {Search{claims[0]}, Search{claims[1]}};
  bool noisy = true;
  for (std::size_t p = 0; p < projections; ++p) {
    const bool told = settled(first[p], claims[p]) && first[p].allows(claims[p].analytic);
    const bool hopeless = !std::isfinite(claims[p].analytic) || !std::isfinite(middle.at[p].value);
    if (told || hopeless) searches[p].smooth = first[p], searches[p].done = true;
    noisy = noisy && first[p].noise > 0.5 * first[p].bar && !narrow(first[p], claims[p]);
  }
  const auto all = [&](auto&& holds) { return holds(searches[0]) && holds(searches[1]); };
  const auto done = [](const Search& s) { return s.done; };
  if (all(done)) return {first, h};

  double step = wide * h;
  search_at(f, step, middle, claims, searches);
  for (int rung = 1; rung <= rungs_up && !all(done); ++rung) {  // rounding asks for wider steps
    if (!all([](const Search& s) { return s.done || s.noisy; })) break;
    search_at(f, step *= narrower, middle, claims, searches);
  }
  const auto exhausted = [](const Search& s) { return s.exhausted(narrower); };
  const auto smooth = [](const Search& s) { return s.done || !s.kinked.kink; };
  for (int rung = 1; rung < rungs_at_kinks && !all(exhausted) && (rung < rungs || !all(smooth)); ++rung)
    search_at(f, step = wide * h / std::pow(narrower, rung), middle, claims, searches);

  Differentiated result{.of = first, .next_step = noisy ? 4 * h : step / wide};
  for (std::size_t p = 0; p < projections; ++p) {
    const Search& s = searches[p];
    if (s.kinked.kink)
      result.of[p] = s.kinked, result.next_step = h;
    else if (std::isfinite(s.smooth.numeric))
      result.of[p] = s.smooth;
  }
  return result;
}

}  // namespace xtape::detail
