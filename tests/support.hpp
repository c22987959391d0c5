#pragma once
// What tests share: the accuracy measure, random arrays, checks of messages, the reference folder.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <string>
#include <xtape/xtape.hpp>

#include "tolerances.hpp"

namespace xtape {

/// max|x - y| / max(1, max|y|); infinity if the shapes differ or exactly one side is NaN somewhere.
template <class X, class Y>
double error_between(const X& x, const Y& y) {
  if (Shape(x.shape()) != Shape(y.shape())) return std::numeric_limits<double>::infinity();
  double difference = 0, largest = 1;
  auto at = y.begin();
  for (const auto raw : x) {
    const double a = static_cast<double>(raw), b = static_cast<double>(*at++);
    if (std::isnan(a) != std::isnan(b)) return std::numeric_limits<double>::infinity();
    if (std::isnan(a) || a == b) continue;
    difference = std::max(difference, std::abs(a - b));
    largest = std::max(largest, std::abs(b));
  }
  return difference / largest;
}

template <class Array>
bool all_zero(const Array& x) {
  return std::all_of(x.begin(), x.end(), [](auto element) { return element == 0; });
}
template <class Array>
bool all_finite(const Array& x) {
  return std::all_of(x.begin(), x.end(), [](auto element) { return std::isfinite(element); });
}

/// Passes if the shapes agree and error_between is at most the tolerance.
template <class X, class Y>
testing::AssertionResult near(const X& x, const Y& y, double tolerance) {
  const double error = error_between(x, y);
  if (error <= tolerance) return testing::AssertionSuccess();
  return testing::AssertionFailure() << "shapes " << Shape(x.shape()) << " and " << Shape(y.shape()) << ", error "
                                     << error << " above " << tolerance;
}

// Loops rather than xtensor expressions, where these are not what is tested: of each the compiler makes more than a
// hundred functions.

/// An array with the same number everywhere.
template <class T>
xt::xarray<T> filled(const Shape& shape, T number) {
  xt::xarray<T> x = xt::xarray<T>::from_shape(std::vector<std::size_t>(shape.begin(), shape.end()));
  std::fill_n(x.data(), x.size(), number);
  return x;
}
template <class T>
xt::xarray<T> zeros_of(const Shape& shape) {
  return filled(shape, T(0));
}
template <class T>
xt::xarray<T> ones_of(const Shape& shape) {
  return filled(shape, T(1));
}

/// y = f(x), element by element.
template <class T>
void set_each(Var<T> y, Var<T> x, std::type_identity_t<T (*)(T)> f) {
  std::transform(x.data(), x.data() + x.size(), y.data(), f);
}
/// dx += dy * slope(x), element by element.
template <class T>
void add_slope(Var<T> x, Var<T> y, std::type_identity_t<T (*)(T)> slope) {
  T* const dx = x.grad().data();
  const T* const dy = y.grad().data();
  for (std::size_t i = 0; i < x.size(); ++i) dx[i] += dy[i] * slope(x.data()[i]);
}

/// Normal random numbers.
template <class T>
xt::xarray<T> random_array(const Shape& shape, std::uint64_t seed, double scale = 1, double offset = 0) {
  Rng rng(seed);
  xt::xarray<T> x = zeros_of<T>(shape);
  for (auto& element : x) element = static_cast<T>(offset + scale * rng.normal());
  return x;
}

template <class T>
xt::xarray<T> copy_of(const T* data, const Shape& shape) {
  xt::xarray<T> copy = xt::xarray<T>::from_shape(std::vector<std::size_t>(shape.begin(), shape.end()));
  std::copy_n(data, shape.size(), copy.data());
  return copy;
}
/// The values of a Var as an array of its own.
template <class T>
xt::xarray<T> array(Var<T> x) {
  return copy_of(x.data(), x.shape());
}
template <class T>
xt::xarray<T> gradient(Var<T> x) {
  return copy_of(x.grad().data(), x.shape());
}

/// A call of something that lives at least as long. (What takes one is compiled once, not for each lambda.)
class Call {
 public:
  Call(Call&) = default;  // rather than a call of a call
  Call(const Call&) = default;
  template <class F>
  Call(F&& f)
      : f_(&f), call_([](const void* g) { (*static_cast<std::remove_reference_t<F>*>(const_cast<void*>(g)))(); }) {}
  void operator()() const { call_(f_); }

 private:
  const void* f_;
  void (*call_)(const void*);
};

/// Runs f and returns the message of the E that it throws; records a failure otherwise.
template <class E>
std::string message_of(Call f) {
  try {
    f();
  } catch (const E& error) {
    return error.what();
  } catch (const std::exception& error) {
    ADD_FAILURE() << "threw another exception: " << error.what();
    return {};
  }
  ADD_FAILURE() << "threw nothing";
  return {};
}

/// Runs f and checks that it throws E with a message that holds every one of the given parts.
template <class E>
void expect_message(Call f, std::initializer_list<const char*> parts) {
  const std::string message = message_of<E>(f);
  for (const char* part : parts) EXPECT_NE(message.find(part), std::string::npos) << "in \"" << message << "\"";
}

/// Folder of the reference files: XTAPE_REFERENCE_DIR, by default the copy beside the tests.
inline std::filesystem::path reference_folder() {
  const char* folder = std::getenv("XTAPE_REFERENCE_DIR");
  return folder != nullptr ? std::filesystem::path(folder)
                           : std::filesystem::path(XTAPE_SOURCE_DIR) / "tests" / "reference";
}

}  // namespace xtape
