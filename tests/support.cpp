#include "support.hpp"

namespace xtape {

template xt::xarray<float> random_array(const Shape&, std::uint64_t, double, double);
template xt::xarray<float> array(Var<float>);
template xt::xarray<float> gradient(Var<float>);
template Var<float> Tape<float>::input(const xt::xarray<float>&, bool);
template testing::AssertionResult near(const xt::xarray<float>&, const xt::xarray<float>&, double);
template testing::AssertionResult near(const ValueOf<float>&, const xt::xarray<float>&, double);
template testing::AssertionResult near(const ValueOf<float>&, const ValueOf<float>&, double);
template xt::xarray<double> random_array(const Shape&, std::uint64_t, double, double);
template xt::xarray<double> array(Var<double>);
template xt::xarray<double> gradient(Var<double>);
template Var<double> Tape<double>::input(const xt::xarray<double>&, bool);
template testing::AssertionResult near(const xt::xarray<double>&, const xt::xarray<double>&, double);
template testing::AssertionResult near(const ValueOf<double>&, const xt::xarray<double>&, double);
template testing::AssertionResult near(const ValueOf<double>&, const ValueOf<double>&, double);
template testing::AssertionResult near(const xt::xarray<float>&, const xt::xarray<double>&, double);
template testing::AssertionResult near(const ValueOf<float>&, const xt::xarray<double>&, double);

}  // namespace xtape
