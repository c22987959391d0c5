#pragma once
// The derivative at 0 of a function of one number, with an error bar that is estimated and not guessed. Every call of
// the function serves two random projections of what is checked.
//
// At first central differences D(h) = (f(h) - f(-h)) / 2h with the steps h and h / 2: four calls. Their error is a
// series in h^2, so (4 D(h/2) - D(h)) / 3 is free of its first term (Richardson 1911), and what the two differ by is
// the bar, together with the rounding noise of f and with what the one-sided slopes differ by once curvature is
// extrapolated away, which is 0 unless f has a kink. That is enough for most elements.
//
// Where the claimed derivative lies outside this bar, or the bar is too wide to tell, tables of Ridders are made
// ("Accurate computation of F'(x) and F'(x)F''(x)", Advances in Engineering Software 4(2), 1982; Numerical Recipes,
// section 5.7): differences with steps that shrink by 1.4, each order of their error extrapolated away. They begin
// with a wide step, which rounding disturbs least; if f bends within it, has a kink within it or is not finite at its
// ends, further tables begin with narrower ones. What looks like a kink at the narrowest step is one. Two differences
// may agree by accident: a table's bar is the larger of its last two changes, and a claim is refuted by two tables.

#include <array>
#include <functional>
#include <limits>

#include <xtape/framework/train/gradcheck_report.hpp>

namespace xtape::detail {

inline constexpr std::size_t projections = 2;
template <class X>
using Pair = std::array<X, projections>;

/// A projection of the output: sum of y w, or of its change, and sum of |y w| over what is rounded anew, the scale of
/// rounding errors.
struct Projected {
  double value = 0, magnitude = 0;
};

/// The function: both projections at t. `reached` becomes the t that rounding made of it.
using Line = std::function<Pair<Projected>(double t, double& reached)>;

/// What is known of the function before it is differentiated.
struct Middle {
  Pair<Projected> at;       // its values at 0
  Pair<double> noise = {};  // what rounding does to a value
};

/// What rounding does to f, measured: second differences over moves of t of few units in the last place of `scale` and
/// of 1e-10 of it. Eight calls. `scale` is what t is to be compared with.
Pair<double> measure_noise(const Line& f, double scale, const Pair<Projected>& middle);

/// A derivative that somebody claims.
struct Claim {
  double analytic = 0;
  double wanted = 0;       // a bar as narrow as this ends the search
  double tolerated = 0;    // with a bar wider than this, and than a ten thousandth of the derivative, nothing is said
  double relative = 1e-5;  // a bar as narrow as this part of the derivative ends the search as well
};

struct Derivative {
  double numeric = std::numeric_limits<double>::quiet_NaN();
  double bar = std::numeric_limits<double>::infinity();  // what the numeric value may be off by
  double noise = 0;                                      // the part of the bar that is due to rounding
  double step = 0;                                       // of the widest difference
  bool kink = false;  // the value is the middle between the one-sided slopes, the bar reaches past both
  double below = 0, above = 0, slack = 0;  // at a kink: one-sided slopes and what they may be off by

  /// True if the value may be the derivative: at a kink, if it lies within the one-sided slopes.
  bool allows(double analytic) const;
};

/// ok, kink (with an acceptable value), inconclusive, mismatch or non_finite.
Reason judge(const Derivative& derivative, const Claim& claim);

/// The four-call difference with the steps h and h / 2.
Pair<Derivative> first_difference(const Line& f, double h, const Middle& middle);

struct Differentiated {
  Pair<Derivative> of;
  double next_step = 0;  // a better h for a function like this
};
/// first_difference, and tables where that does not suffice. `h` is best a thousandth of the scale on which f changes.
Differentiated differentiate(const Line& f, double h, const Middle& middle, const Pair<Claim>& claims);

}  // namespace xtape::detail
