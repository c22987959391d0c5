// The types of elements that files hold: read, converted and written.

#include <bit>
#include <limits>

#include "behaviour.hpp"
#include "files.hpp"

namespace xtape::safetensors_types_test {
namespace {

/// A file of one array "x" of the given type and rank 1.
std::string one_array(const std::string& dtype, std::size_t count, const std::string& data) {
  return safetensors(
      fmt::format(R"({{"x":{{"dtype":"{}","shape":[{}],"data_offsets":[0,{}]}}}})", dtype, count, data.size()), data);
}

/// The elements of such a file, read as T.
template <class T>
std::vector<T> read_as(const std::string& dtype, std::size_t count, const std::string& data) {
  const TemporaryFolder folder;
  write_bytes(folder / "file", one_array(dtype, count, data));
  const SafetensorsFile file(folder / "file");
  EXPECT_EQ(file.dtype("x"), dtype);
  return file.read<T>("x");
}

/// The bytes of numbers, given as integers of their width.
template <class Word>
std::string words(std::initializer_list<Word> list) {
  std::string bytes;
  for (const Word word : list)
    for (std::size_t i = 0; i < sizeof(Word); ++i) bytes.push_back(static_cast<char>(word >> (8 * i) & 0xFF));
  return bytes;
}

TEST(SafetensorsTypes, FloatsOfEveryWidthAreRead) {
  in_both_types([](auto zero) {
    using T = decltype(zero);
    const std::vector<T> expected = {1, T(-2.5), std::numeric_limits<T>::infinity(), 0};
    EXPECT_EQ(
        read_as<T>("F64", 4, words<std::uint64_t>({0x3FF0000000000000, 0xC004000000000000, 0x7FF0000000000000, 0})),
        expected);
    EXPECT_EQ(read_as<T>("F32", 4, words<std::uint32_t>({0x3F800000, 0xC0200000, 0x7F800000, 0})), expected);
    EXPECT_EQ(read_as<T>("F16", 4, words<std::uint16_t>({0x3C00, 0xC100, 0x7C00, 0})), expected);
    EXPECT_EQ(read_as<T>("BF16", 4, words<std::uint16_t>({0x3F80, 0xC020, 0x7F80, 0})), expected);
    EXPECT_EQ(read_as<T>("F16", 2, words<std::uint16_t>({1, 0x03FF})), (std::vector<T>{0x1p-24, 0x1.FF8p-15}));
  });
  EXPECT_EQ(read_as<float>("F64", 1, words<std::uint64_t>({0x7FE0000000000000})),
            std::vector<float>{std::numeric_limits<float>::infinity()});
}

TEST(SafetensorsTypes, IntegersOfEveryWidthAreRead) {
  using Int = std::int64_t;
  EXPECT_EQ(read_as<Int>("I64", 2, words<std::uint64_t>({1, ~0ULL - 1})), (std::vector<Int>{1, -2}));
  EXPECT_EQ(read_as<Int>("I32", 2, words<std::uint32_t>({0x7FFFFFFF, 0xFFFFFFFE})), (std::vector<Int>{0x7FFFFFFF, -2}));
  EXPECT_EQ(read_as<Int>("I16", 2, words<std::uint16_t>({0x7FFF, 0xFFFD})), (std::vector<Int>{0x7FFF, -3}));
  EXPECT_EQ(read_as<Int>("I8", 2, "\x7F\xFC"), (std::vector<Int>{127, -4}));
  EXPECT_EQ(read_as<Int>("U8", 2, "\x7F\xFB"), (std::vector<Int>{127, 251}));
  EXPECT_EQ(read_as<Int>("BOOL", 3, std::string("\0\1\1", 3)), (std::vector<Int>{0, 1, 1}));
}

TEST(SafetensorsTypes, ABooleanIsZeroOrOne) {
  const TemporaryFolder folder;
  const auto path = folder / "file";
  write_bytes(path, one_array("BOOL", 3, std::string("\0\1\2", 3)));
  expect_message<FormatError>([&] { SafetensorsFile(path).read<std::int64_t>("x"); },
                              {path.c_str(), ": x must be 0 or 1", "BOOL, got 2"});
}

TEST(SafetensorsTypes, NothingIsReadAsWhatItIsNot) {
  const TemporaryFolder folder;
  const auto path = folder / "file";
  const std::string data(24, '\0');  // so many elements of each type fill it
  const std::vector<std::pair<const char*, std::size_t>> integers = {{"I64", 3}, {"I32", 6}, {"I16", 12},
                                                                     {"I8", 24}, {"U8", 24}, {"BOOL", 24}};
  const std::vector<std::pair<const char*, std::size_t>> floats = {{"F64", 3}, {"F32", 6}, {"F16", 12}, {"BF16", 12}};
  const std::vector<std::pair<const char*, std::size_t>> others = {
      {"U64", 3},      {"U32", 6},          {"U16", 12},         {"C64", 3},      {"F8_E4M3", 24}, {"F8_E5M2", 24},
      {"F8_E8M0", 24}, {"F8_E4M3FNUZ", 24}, {"F8_E5M2FNUZ", 24}, {"F6_E2M3", 32}, {"F6_E3M2", 32}, {"F4", 48}};
  const auto check = [&](const auto& types, bool are_floats, bool are_integers) {
    for (const auto& [dtype, count] : types) {
      SCOPED_TRACE(dtype);
      write_bytes(path, one_array(dtype, count, data));
      const SafetensorsFile file(path);  // the header of each is good
      EXPECT_EQ(file.dtype("x"), dtype);
      if (are_floats)
        EXPECT_EQ(file.read<float>("x"), std::vector<float>(count));
      else
        expect_message<FormatError>([&] { file.read<float>("x"); }, {path.c_str(), ": x must be F64", dtype});
      if (are_integers)
        EXPECT_EQ(file.read<std::int64_t>("x"), std::vector<std::int64_t>(count));
      else
        expect_message<FormatError>([&] { file.read<std::int64_t>("x"); }, {path.c_str(), ": x must be I64", dtype});
    }
  };
  check(floats, true, false);
  check(integers, false, true);
  check(others, false, false);
  expect_message<FormatError>([&] { SafetensorsFile(path).read<float>("absent"); }, {path.c_str(), "absent"});
}

TEST(SafetensorsTypes, AnArrayOfSixBitsEndsWithAByte) {
  const TemporaryFolder folder;
  write_bytes(folder / "file", one_array("F6_E2M3", 3, "123"));
  expect_message<FormatError>([&] { SafetensorsFile file(folder / "file"); }, {"x of shape (3)", "does not fill"});
}

TEST(SafetensorsTypes, DataThatIsNotAlignedIsRead) {
  const TemporaryFolder folder;
  const std::string header = R"({"byte":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                             R"("f64":{"dtype":"F64","shape":[1],"data_offsets":[1,9]},)"
                             R"("f16":{"dtype":"F16","shape":[1],"data_offsets":[9,11]}})";
  write_bytes(folder / "file", safetensors(header, "\x2A" + words<std::uint64_t>({0x3FF0000000000000}) +
                                                       words<std::uint16_t>({0x3C00})));
  const SafetensorsFile file(folder / "file");
  EXPECT_EQ(file.read<std::int64_t>("byte"), std::vector<std::int64_t>{42});
  EXPECT_EQ(file.read<double>("f64"), std::vector<double>{1});
  EXPECT_EQ(file.read<double>("f16"), std::vector<double>{1});
}

TEST(SafetensorsTypes, FloatsOfEveryWidthAreWritten) {
  in_both_types([](auto zero) {
    using T = decltype(zero);
    constexpr T infinity = std::numeric_limits<T>::infinity();
    const TemporaryFolder folder;
    std::vector<T> x = {0, 1, T(-2.5), T(1.0009765625), T(1.00390625), 65504, 65520, T(-3.39e38), infinity};
    const std::span<const T> data(x);
    write_safetensors(folder / "file", {{"f16", {9}, data, Dtype::F16},
                                        {"f64", {3, 3}, data, Dtype::F64},
                                        {"bf16", {9, 1}, data, Dtype::BF16},
                                        {"f32", {1, 9}, data, Dtype::F32},
                                        {"own", {9}, data}});
    const SafetensorsFile file(folder / "file");
    EXPECT_EQ(file.dtype("f64"), "F64");
    EXPECT_EQ(file.dtype("f32"), "F32");
    EXPECT_EQ(file.dtype("f16"), "F16");
    EXPECT_EQ(file.dtype("bf16"), "BF16");
    EXPECT_EQ(file.dtype("own"), sizeof(T) == 8 ? "F64" : "F32");
    EXPECT_EQ(file.shape("f64"), (std::vector<std::size_t>{3, 3}));
    EXPECT_EQ(file.read<T>("f64"), x);
    EXPECT_EQ(file.read<T>("own"), x);
    EXPECT_EQ(file.read<float>("f32"), std::vector<float>(x.begin(), x.end()));
    EXPECT_EQ(file.read<T>("f16"),
              (std::vector<T>{0, 1, T(-2.5), T(1.0009765625), T(1.00390625), 65504, infinity, -infinity, infinity}));
    EXPECT_EQ(file.read<T>("bf16"),
              (std::vector<T>{0, 1, T(-2.5), 1, 1, 65536, 65536, -0x1.FEp127, infinity}));  // -3.39e38 is no overflow
  });
}

TEST(SafetensorsTypes, ADoubleIsRoundedOnceNotTwice) {
  const TemporaryFolder folder;
  const double x = 1 + 0x1p-8 + 0x1p-40, y = 1 + 0x1p-11 + 0x1p-40;  // just above a tie, which a float would make it
  write_safetensors(folder / "file", {{"x", {1}, std::span<const double>(&x, 1), Dtype::BF16},
                                      {"y", {1}, std::span<const double>(&y, 1), Dtype::F16}});
  const SafetensorsFile file(folder / "file");
  EXPECT_EQ(file.read<double>("x")[0], 1 + 0x1p-7);
  EXPECT_EQ(file.read<double>("y")[0], 1 + 0x1p-10);
}

TEST(SafetensorsTypes, ArraysLargerThanAPieceAreWrittenWhole) {
  const TemporaryFolder folder;
  for (const std::size_t n : {8191, 8192, 8193, 20'000}) {
    std::vector<double> x(n);
    for (std::size_t i = 0; i < n; ++i) x[i] = static_cast<double>(i % 2048);
    write_safetensors(folder / "file", {{"x", {n}, std::span<const double>(x), Dtype::F16},
                                        {"y", {n}, std::span<const double>(x), Dtype::F32}});
    EXPECT_EQ(SafetensorsFile(folder / "file").read<double>("x"), x);
    EXPECT_EQ(SafetensorsFile(folder / "file").read<double>("y"), x);
  }
}

TEST(SafetensorsTypes, WhatCannotBeWrittenIsRefused) {
  const TemporaryFolder folder;
  const float x = 1;
  const std::int64_t n = 1;
  for (const Dtype dtype : {Dtype::I64, Dtype::BOOL, Dtype::F8_E4M3, Dtype::U8})
    expect_message<Error>(
        [&] {
          write_safetensors(folder / "file", {{"x", {}, std::span<const float>(&x, 1), dtype}});
        },
        {(folder / "file").c_str(), ": x can be written as F64", to_string(dtype).c_str()});
  for (const Dtype dtype : {Dtype::F64, Dtype::I32})
    expect_message<Error>(
        [&] {
          write_safetensors(folder / "file", {{"n", {}, std::span<const std::int64_t>(&n, 1), dtype}});
        },
        {(folder / "file").c_str(), ": n can be written as I64", to_string(dtype).c_str()});
  EXPECT_EQ(folder.entries(), 0U);
}

TEST(SafetensorsTypes, EveryArrayIsAligned) {
  const TemporaryFolder folder;
  const std::vector<double> x = {1, 2, 3};
  const std::span<const double> data(x);
  write_safetensors(folder / "file", {{"a", {3}, data, Dtype::BF16}, {"b", {3}, data, Dtype::F32}, {"c", {3}, data}});
  const std::string bytes = read_bytes(folder / "file");
  EXPECT_NE(bytes.find(R"("c":{"dtype":"F64","shape":[3],"data_offsets":[0,24]})"), std::string::npos) << bytes;
  EXPECT_NE(bytes.find(R"("b":{"dtype":"F32","shape":[3],"data_offsets":[24,36]})"), std::string::npos);
  EXPECT_NE(bytes.find(R"("a":{"dtype":"BF16","shape":[3],"data_offsets":[36,42]})"), std::string::npos);
}

TEST(SafetensorsTypes, AModelIsSavedInAnyTypeAndLoadedFromIt) {
  in_both_types([](auto zero) {
    using T = decltype(zero);
    const TemporaryFolder folder;
    ParameterList<T> model, loaded;
    model.emplace_back("w", parameter_of(xt::xarray<T>{{1, T(-0.5)}, {1024, 0}}));
    model.emplace_back("empty", Parameter<T>({0, 3}));
    model.emplace_back("scalar", Parameter<T>(Shape()));
    loaded.emplace_back("w", Parameter<T>({2, 2}));
    loaded.emplace_back("empty", Parameter<T>({0, 3}));
    loaded.emplace_back("scalar", parameter_of(xt::xarray<T>(7)));
    for (const Dtype dtype : {Dtype::F64, Dtype::F32, Dtype::F16, Dtype::BF16}) {
      save_safetensors(folder / "x", model, {{"format", "pt"}}, {.dtype = dtype});
      EXPECT_EQ(SafetensorsFile(folder / "x").dtype("w"), to_string(dtype));
      fill(loaded[0].parameter, T(9));
      load_safetensors(folder / "x", loaded);
      EXPECT_EQ(values_of(loaded[0].parameter), values_of(model[0].parameter));
      EXPECT_EQ(loaded[2].parameter.data()[0], T(0));
    }
    expect_message<Error>([&] { save_safetensors(folder / "x", model, {}, {.dtype = Dtype::I64}); }, {"w can", "I64"});
  });
}

}  // namespace
}  // namespace xtape::safetensors_types_test
