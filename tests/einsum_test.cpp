// einsum against plain loops over all letters, and what it refuses.

#include <map>

#include "support.hpp"

namespace xtape::einsum_test {
namespace {

/// The sum over every assignment of the letters, as the notation says.
xt::xarray<double> by_loops(const std::string& pattern, const std::vector<xt::xarray<double>>& operands) {
  std::vector<std::string> groups(1);
  for (const char c : pattern.substr(0, pattern.find("->"))) {
    if (c == ',')
      groups.emplace_back();
    else
      groups.back() += c;
  }
  const std::string result = pattern.substr(pattern.find("->") + 2);
  std::map<char, std::size_t> extent;
  for (std::size_t i = 0; i < groups.size(); ++i)
    for (std::size_t axis = 0; axis < groups[i].size(); ++axis) extent[groups[i][axis]] = operands[i].shape(axis);
  std::vector<std::size_t> shape;
  for (const char c : result) shape.push_back(extent[c]);
  xt::xarray<double> y = zeros_of<double>(Shape(shape));
  std::size_t assignments = 1;
  for (const auto& [letter, n] : extent) assignments *= n;
  for (std::size_t number = 0; number < assignments; ++number) {
    std::map<char, std::size_t> at;
    std::size_t rest = number;
    for (const auto& [letter, n] : extent) at[letter] = rest % n, rest /= n;
    const auto element = [&](const std::string& letters) {
      std::vector<std::size_t> index;
      for (const char c : letters) index.push_back(at[c]);
      return index;
    };
    double term = 1;
    for (std::size_t i = 0; i < groups.size(); ++i)
      term *= operands[i].element(element(groups[i]).begin(), element(groups[i]).end());
    const auto index = element(result);
    y.element(index.begin(), index.end()) += term;
  }
  return y;
}

TEST(Einsum, AgreesWithLoopsOverAllLetters) {
  const std::map<char, std::size_t> extent = {{'a', 2}, {'b', 3}, {'c', 1}, {'d', 4}, {'e', 2}, {'q', 3}};
  for (const std::string pattern :
       {"ab,bd->ad",    "ab,bd->da",       "ab,db->ad",       "ab,ab->ab",    "ab,ab->", "ab->ba",    "ab->",
        "a,b->ab",      "abc,abd->acd",    "abcd,abqd->acbq", "abq,adq->adb", "ab,b->a", "a,ab,b->",  "ab,dab->d",
        "ab,bd,dq->aq", "ab,bd,dq,qe->ae", "abde->edba",      "ab,dq->ad",    ",a->a",   "ab,q->baq", "abe,be->eab"}) {
    SCOPED_TRACE(pattern);
    Tape<double> tape;
    std::vector<xt::xarray<double>> arrays;
    std::vector<Var<double>> x;
    std::vector<Shape> shapes(1);
    for (const char c : pattern.substr(0, pattern.find("->"))) {
      if (c == ',')
        shapes.emplace_back();
      else
        shapes.back().push_back(extent.at(c));
    }
    for (const Shape& shape : shapes) {
      arrays.push_back(random_array<double>(shape, 10 + arrays.size()));
      x.push_back(tape.input(arrays.back(), true));
    }
    const Var<double> y = x.size() == 1   ? einsum(pattern, x[0])
                          : x.size() == 2 ? einsum(pattern, x[0], x[1])
                          : x.size() == 3 ? einsum(pattern, x[0], x[1], x[2])
                                          : einsum(pattern, x[0], x[1], x[2], x[3]);
    EXPECT_TRUE(near(y.value(), by_loops(pattern, arrays), tolerance::two_paths_double));
  }
}

TEST(Einsum, AnExtentOfNothingSumsToZero) {
  Tape<double> tape;
  const Var<double> a = tape.input(zeros_of<double>({2, 0})), b = tape.input(zeros_of<double>({0, 3}));
  EXPECT_EQ(array(einsum("ij,jk->ik", a, b)), zeros_of<double>({2, 3}));
}

TEST(Einsum, WhatItDoesNotServeIsASentence) {
  Tape<double> tape;
  const Var<double> x = tape.input(random_array<double>({3, 3}, 1));
  const auto refused = [&](const char* pattern, const char* words) {
    expect_message<ShapeError>([&] { einsum(pattern, x, x); }, {"[einsum]", words, pattern});
  };
  refused("ij,jk", "with the result named");
  refused("ii,ij->ij", "'i' twice");
  refused("ij,jk->ii", "'i' twice");
  refused("...ij,jk->ik", "got '.'");
  refused("ij->ij", "each of 2 operands");
  refused("ij,jk,kl->il", "each of 2 operands");
  refused("ij,jkl->il", "rank 3");
  refused("ij,jk->iz", "'z'");
  refused("ij,kl->ijkl->", "got '-'");
  expect_message<ShapeError>(
      [&] {
        einsum("ij,jk->ik", x, tape.input(random_array<double>({4, 3}, 1)));
      },
      {"[einsum]", "'j'", "(3, 3) and (4, 3)"});
  const Var<double> wide = tape.input(random_array<double>({2, 2, 2}, 1));
  expect_message<ShapeError>([&] { einsum("abc,def->abcdef", wide, wide); }, {"[einsum]", "at most 4 letters"});
  expect_message<TapeError>([&] { einsum("ij,jk->ik", x, Var<double>()); }, {"[einsum]"});
}

}  // namespace
}  // namespace xtape::einsum_test
