#pragma once
// Every tolerance of the tests, with its reason. They bound `error_between` (support.hpp): max|x - y| / max(1, max|y|).

namespace xtape::tolerance {

/// Double against values that NumPy and PyTorch computed in double: some hundred roundings of 2e-16 each.
inline constexpr double reference = 1e-12;
/// layer_norm at a mean of 1e4: the reference's own subtraction of the mean loses four digits.
inline constexpr double reference_large_mean = 1e-10;
/// Fifteen optimizer steps: each divides by the root of a second moment and so enlarges rounding differences.
inline constexpr double reference_training = 1e-9;
/// Two paths of one op (fused and composed), same type.
inline constexpr double two_paths_double = 1e-12;
inline constexpr double two_paths_float = 2e-5;
/// Float against double: some hundred roundings of 6e-8 each.
inline constexpr double float_against_double = 2e-5;
/// Decoding token by token against all at once: sums of other lengths, and products that BLAS, where it is used, adds in another order.
inline constexpr double decoding_double = 1e-12;
inline constexpr double decoding_float = 1e-5;
/// Float against PyTorch's float, or against double with the same weights, for a few narrow layers.
inline constexpr double bridge = 1e-6;
/// Values worked out by hand or by NumPy to ten digits in the list of behaviours.
inline constexpr double behaviour_double = 1e-6;
inline constexpr double behaviour_float = 1e-5;
/// The standard deviation of 20 000 random numbers is itself known to half a percent.
inline constexpr double statistical = 0.03;

template <class T>
inline constexpr double two_paths = sizeof(T) == sizeof(float) ? two_paths_float : two_paths_double;
template <class T>
inline constexpr double decoding = sizeof(T) == sizeof(float) ? decoding_float : decoding_double;
template <class T>
inline constexpr double behaviour = sizeof(T) == sizeof(float) ? behaviour_float : behaviour_double;

}  // namespace xtape::tolerance
