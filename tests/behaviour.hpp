#pragma once
// What the tests of behaviour_*_test.cpp share. Each of them is one case from the reports of comparable projects, with
// the input that failed there and the right values, and then the rest of its kind.

#include "support.hpp"

namespace xtape {

/// Runs a test body in float and in double: `in_both_types([](auto zero) { using T = decltype(zero); ... })`.
template <class Body>
void in_both_types(Body body) {
  {
    SCOPED_TRACE("float");
    body(float{});
  }
  {
    SCOPED_TRACE("double");
    body(double{});
  }
}

/// A matrix of one column; xarray cannot tell {{1}, {2}} from {1, 2}.
template <class T>
xt::xarray<T> column(std::initializer_list<T> values) {
  xt::xarray<T> result = zeros_of<T>({values.size(), 1});
  std::copy(values.begin(), values.end(), result.begin());
  return result;
}

/// A parameter of the given values.
template <class T>
Parameter<T> parameter_of(const xt::xarray<T>& values, Role role = Role::weight) {
  Parameter<T> parameter(Shape(values.shape()), role);
  std::copy(values.begin(), values.end(), parameter.write_data());
  return parameter;
}

/// The values of a parameter as an array of its own.
template <class T>
xt::xarray<T> values_of(const Parameter<T>& parameter) {
  return parameter.value();
}

}  // namespace xtape
