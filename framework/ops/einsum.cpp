#include <xtape/framework/ops/ops.hpp>

#include <algorithm>

namespace xtape {
namespace {

/// The letters of one operand, one an axis.
class Letters {
 public:
  std::size_t size() const { return count_; }
  char operator[](std::size_t axis) const { return letters_[axis]; }
  bool has(char letter) const { return place(letter) < count_; }
  std::size_t place(char letter) const {
    return static_cast<std::size_t>(
        std::find(letters_.begin(), letters_.begin() + static_cast<std::ptrdiff_t>(count_), letter) - letters_.begin());
  }
  std::string_view text() const { return {letters_.data(), count_}; }
  void add(char letter, std::string_view pattern) {
    require<ShapeError>(count_ < Shape::max_rank,
                        "[einsum] at most {} letters fit an operand, a result or what two operands make together, got "
                        "more in \"{}\"",
                        Shape::max_rank, pattern);
    letters_[count_++] = letter;
  }

 private:
  std::array<char, Shape::max_rank> letters_{};
  std::size_t count_ = 0;
};

Letters read_letters(std::string_view part, std::string_view pattern) {
  Letters letters;
  for (const char c : part) {
    if (c == ' ') continue;
    require<ShapeError>((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'),
                        "[einsum] expected letters, \",\" and one \"->\", got '{}' in \"{}\"", c, pattern);
    require<ShapeError>(!letters.has(c), "[einsum] a letter stands once in an operand, got '{}' twice in \"{}\"", c,
                        pattern);
    letters.add(c, pattern);
  }
  return letters;
}

/// An operand and its letters.
template <class T>
struct Term {
  Var<T> x;
  Letters letters;

  std::size_t extent(char letter) const { return x.shape()[letters.place(letter)]; }
};

/// The axes in the order of `letters`, which are those of the term.
template <class T>
Var<T> arranged(const Term<T>& term, const Letters& letters) {
  if (term.letters.text() == letters.text()) return term.x;
  const auto axis = [&](std::size_t i) { return static_cast<int>(term.letters.place(letters[i])); };
  switch (letters.size()) {
    case 2:
      return transpose(term.x, {axis(0), axis(1)});
    case 3:
      return transpose(term.x, {axis(0), axis(1), axis(2)});
    default:
      return transpose(term.x, {axis(0), axis(1), axis(2), axis(3)});
  }
}

/// Sums over the letters that nobody else names.
template <class T, class Needed>
Term<T> without_unused(Term<T> term, Needed needed) {
  for (std::size_t axis = term.letters.size(); axis-- > 0;) {
    if (needed(term.letters[axis])) continue;
    Letters rest;
    for (std::size_t i = 0; i < term.letters.size(); ++i)
      if (i != axis) rest.add(term.letters[i], "");
    term = {sum(term.x, static_cast<int>(axis)), rest};
  }
  return term;
}

/// Both operands as one batched matrix product: (batch, rows, summed) times (batch, summed, columns). A letter of both
/// is a batch letter if it is still needed, else it is summed over.
template <class T, class Needed>
Term<T> product(Term<T> a, Term<T> b, Needed needed, std::string_view pattern) {
  a = without_unused(a, [&](char c) { return needed(c) || b.letters.has(c); });
  b = without_unused(b, [&](char c) { return needed(c) || a.letters.has(c); });
  Letters left, right, result;
  std::array<char, Shape::max_rank> summed{};
  std::size_t batch = 1, rows = 1, inner = 1, columns = 1, summed_count = 0;
  Shape shape;
  const auto keep = [&](char c, std::size_t extent) {
    result.add(c, pattern);
    shape.push_back(extent);
  };
  for (const char c : a.letters.text())
    if (b.letters.has(c) && needed(c)) left.add(c, ""), right.add(c, ""), batch *= a.extent(c), keep(c, a.extent(c));
  for (const char c : a.letters.text())
    if (!b.letters.has(c)) left.add(c, ""), rows *= a.extent(c), keep(c, a.extent(c));
  for (const char c : a.letters.text())
    if (b.letters.has(c) && !needed(c)) left.add(c, ""), inner *= a.extent(c), summed[summed_count++] = c;
  for (std::size_t i = 0; i < summed_count; ++i) right.add(summed[i], "");
  for (const char c : b.letters.text())
    if (!a.letters.has(c)) right.add(c, ""), columns *= b.extent(c), keep(c, b.extent(c));
  const Var<T> x = reshape(arranged(a, left), {batch, rows, inner}),
               y = reshape(arranged(b, right), {batch, inner, columns});
  return {reshape(matmul(x, y), shape), result};
}

}  // namespace

template <class T>
Var<T> einsum(std::string_view pattern, std::initializer_list<Var<T>> operands) {
  constexpr std::size_t most = 4;
  require<ShapeError>(operands.size() >= 1 && operands.size() <= most, "[einsum] expected 1 to {} operands, got {}",
                      most, operands.size());
  Tape<T>& tape = operands.begin()->tape("einsum");
  const std::size_t arrow = pattern.find("->");
  require<ShapeError>(arrow != std::string_view::npos,
                      "[einsum] expected a pattern such as \"ij,jk->ik\", with the result named, got \"{}\"", pattern);
  const Letters result = read_letters(pattern.substr(arrow + 2), pattern);
  std::array<Term<T>, most> terms;
  std::string_view rest = pattern.substr(0, arrow);
  std::size_t count = 0;
  for (const Var<T>& x : operands) {
    tape.check(x, "einsum");
    const std::size_t comma = rest.find(',');
    const bool last = count + 1 == operands.size();
    require<ShapeError>((comma == std::string_view::npos) == last,
                        "[einsum] expected one group of letters for each of {} operands, got \"{}\"", operands.size(),
                        pattern);
    Term<T>& term = terms[count++] = {x, read_letters(rest.substr(0, comma), pattern)};
    require<ShapeError>(term.letters.size() == x.shape().rank(),
                        "[einsum] expected an operand of rank {} for \"{}\" of \"{}\", got {}", term.letters.size(),
                        term.letters.text(), pattern, x.shape());
    if (!last) rest = rest.substr(comma + 1);
    for (const char c : term.letters.text())
      for (std::size_t i = 0; i + 1 < count; ++i)
        require<ShapeError>(!terms[i].letters.has(c) || terms[i].extent(c) == term.extent(c),
                            "[einsum] letter '{}' of \"{}\" must have one extent, got {} and {}", c, pattern,
                            terms[i].x.shape(), x.shape());
  }
  for (std::size_t i = 0; i < result.size(); ++i)
    require<ShapeError>(std::any_of(terms.begin(), terms.begin() + static_cast<std::ptrdiff_t>(count),
                                    [&](const Term<T>& term) { return term.letters.has(result[i]); }),
                        "[einsum] the result's letters must stand in an operand, got '{}' in \"{}\"", result[i],
                        pattern);
  Term<T> made = terms[0];
  for (std::size_t next = 1; next < count; ++next)
    made = product(
        made, terms[next],
        [&](char c) {
          return result.has(c) || std::any_of(terms.begin() + static_cast<std::ptrdiff_t>(next) + 1,
                                              terms.begin() + static_cast<std::ptrdiff_t>(count),
                                              [&](const Term<T>& term) { return term.letters.has(c); });
        },
        pattern);
  made = without_unused(made, [&](char c) { return result.has(c); });
  return arranged(made, result);
}

template Var<float> einsum(std::string_view, std::initializer_list<Var<float>>);
template Var<double> einsum(std::string_view, std::initializer_list<Var<double>>);

}  // namespace xtape
