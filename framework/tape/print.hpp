#pragma once
// Values as text, long axes shortened: [[1, 2.5, 0], [3, 4, 1e-05]].

#include <string>

#include <xtape/framework/base/shape.hpp>

namespace xtape {

template <class T>
std::string array_to_string(const T* data, const Shape& shape);

}  // namespace xtape
