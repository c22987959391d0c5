// Round trips, and loading into a model.

#include <sys/stat.h>

#include <bit>
#include <limits>

#include "behaviour.hpp"
#include "files.hpp"

namespace xtape::safetensors_test {
namespace {

template <class T>
std::vector<std::uint64_t> bits(const std::vector<T>& values) {
  using Word = std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>;
  std::vector<std::uint64_t> result;
  for (const T value : values) result.push_back(std::bit_cast<Word>(value));
  return result;
}

template <class T>
std::vector<T> awkward_numbers() {
  using Limits = std::numeric_limits<T>;
  return {0,
          T(-0.0),
          1,
          T(-1) / 3,
          Limits::infinity(),
          -Limits::infinity(),
          Limits::max(),
          Limits::min(),
          Limits::denorm_min(),
          Limits::quiet_NaN(),
          -Limits::quiet_NaN(),
          Limits::epsilon()};
}

TEST(Safetensors, RoundTripsKeepEveryBit) {
  const TemporaryFolder folder;
  const auto path = folder / "arrays.safetensors";
  const auto floats = awkward_numbers<float>();
  const auto doubles = awkward_numbers<double>();
  const std::vector<std::int64_t> integers = {0, -1, std::numeric_limits<std::int64_t>::min(),
                                              std::numeric_limits<std::int64_t>::max()};
  write_safetensors(path, {{"floats", {3, 4}, std::span<const float>(floats)},
                           {"doubles", {12}, std::span<const double>(doubles)},
                           {"integers", {2, 1, 2}, std::span<const std::int64_t>(integers)}});
  const SafetensorsFile file(path);
  EXPECT_EQ(file.names(), (std::vector<std::string>{"doubles", "floats", "integers"}));
  EXPECT_EQ(bits(file.read<float>("floats")), bits(floats));
  EXPECT_EQ(bits(file.read<double>("doubles")), bits(doubles));
  EXPECT_EQ(file.read<std::int64_t>("integers"), integers);
  EXPECT_EQ(file.dtype("floats"), "F32");
  EXPECT_EQ(file.dtype("doubles"), "F64");
  EXPECT_EQ(file.dtype("integers"), "I64");
  EXPECT_EQ(file.shape("integers"), (std::vector<std::size_t>{2, 1, 2}));
}

TEST(Safetensors, ScalarsAndEmptyArrays) {
  const TemporaryFolder folder;
  const auto path = folder / "arrays.safetensors";
  const double number = 42;
  write_safetensors(path, {{"scalar", {}, std::span<const double>(&number, 1)},
                           {"empty", {2, 0, 3}, std::span<const double>()},
                           {"empty too", {0}, std::span<const float>()}});
  const SafetensorsFile file(path);
  EXPECT_EQ(file.read<double>("scalar"), std::vector<double>{42});
  EXPECT_TRUE(file.shape("scalar").empty());
  EXPECT_TRUE(file.read<double>("empty").empty());
  EXPECT_EQ(file.shape("empty"), (std::vector<std::size_t>{2, 0, 3}));
  EXPECT_TRUE(file.read<float>("empty too").empty());

  write_safetensors(path, {});
  EXPECT_TRUE(SafetensorsFile(path).names().empty());
}

TEST(Safetensors, NamesAndMetadataAreUtf8) {
  const TemporaryFolder folder;
  const auto path = folder / "Gewichte für Übung 1.safetensors";
  const Metadata metadata = {{"autor", "Gödel"}, {"日本", "東京 \"tower\" \\ \n\t"}, {"", ""}};
  const float one = 1;
  write_safetensors(path, {{"größe.β", {1}, std::span<const float>(&one, 1)}}, metadata);
  const SafetensorsFile file(path);
  EXPECT_EQ(file.metadata(), metadata);
  EXPECT_TRUE(file.contains("größe.β"));
  EXPECT_FALSE(file.contains("__metadata__"));
}

TEST(Safetensors, TextThatIsNotUtf8IsRefused) {
  const TemporaryFolder folder;
  const float one = 1;
  const std::span<const float> data(&one, 1);
  expect_message<Error>([&] { write_safetensors(folder / "a", {{"\xff", {1}, data}}); }, {"[safetensors]", "UTF-8"});
  expect_message<Error>(
      [&] {
        write_safetensors(folder / "a", {{"x", {1}, data}}, {{"key", "\xc3"}});
      },
      {"[safetensors]", "UTF-8"});
  EXPECT_EQ(folder.entries(), 0U);
}

TEST(Safetensors, TheDataStartsAtAMultipleOfEight) {
  const TemporaryFolder folder;
  for (const std::string name : {"a", "ab", "abc", "abcdefgh"}) {
    const double one = 1;
    write_safetensors(folder / "x", {{name, {1}, std::span<const double>(&one, 1)}});
    EXPECT_EQ(read_bytes(folder / "x").size() % 8, 0U);
  }
}

TEST(Safetensors, TheWriterRefusesWhatCouldNotBeRead) {
  const TemporaryFolder folder;
  const float one = 1;
  const std::span<const float> data(&one, 1);
  expect_message<Error>([&] { write_safetensors(folder / "x", {{"a", {1}, data}, {"a", {1}, data}}); }, {"a again"});
  expect_message<Error>(
      [&] {
        write_safetensors(folder / "x", {{"__metadata__", {1}, data}});
      },
      {"name of its own, got __metadata__"});
  expect_message<ShapeError>(
      [&] {
        write_safetensors(folder / "x", {{"a", {2, 3}, data}});
      },
      {"a must have", "(2, 3)", "got 1"});
  EXPECT_EQ(folder.entries(), 0U);
}

TEST(Safetensors, AFileStaysWhatItWasWhenAnotherTakesItsName) {
  const TemporaryFolder folder;
  const std::vector<double> old = {1, 2, 3}, fresh = {4, 5, 6, 7};
  write_safetensors(folder / "x", {{"a", {3}, std::span<const double>(old)}});
  const SafetensorsFile file(folder / "x");
  const SafetensorsFile copy = file;
  write_safetensors(folder / "x", {{"a", {4}, std::span<const double>(fresh)}});
  EXPECT_EQ(file.read<double>("a"), old);
  EXPECT_EQ(copy.read<double>("a"), old);
  EXPECT_EQ(SafetensorsFile(folder / "x").read<double>("a"), fresh);
}

/// Two parameters, "a" (2, 3) and "b" (3,).
template <class T>
ParameterList<T> two_parameters(std::uint64_t seed) {
  ParameterList<T> list;
  list.emplace_back("a", parameter_of(random_array<T>({2, 3}, seed)));
  list.emplace_back("b", parameter_of(random_array<T>({3}, seed + 1)));
  return list;
}

template <class T>
std::vector<xt::xarray<T>> contents(const ParameterList<T>& list) {
  std::vector<xt::xarray<T>> result;
  for (const auto& entry : list) result.push_back(values_of(entry.parameter));
  return result;
}

TEST(Safetensors, SaveAndLoadAModel) {
  in_both_types([](auto zero) {
    using T = decltype(zero);
    const TemporaryFolder folder;
    const auto saved = two_parameters<T>(1);
    save_safetensors(folder / "x", saved, {{"step", "7"}});
    auto loaded = two_parameters<T>(3);
    const auto version = loaded[0].parameter.version();
    load_safetensors(folder / "x", loaded);
    EXPECT_EQ(contents(loaded), contents(saved));
    EXPECT_GT(loaded[0].parameter.version(), version);  // so that a tape notices
    EXPECT_EQ(SafetensorsFile(folder / "x").metadata().at("step"), "7");
  });
}

TEST(Safetensors, FloatAndDoubleFilesLoadIntoEither) {
  const TemporaryFolder folder;
  const auto floats = two_parameters<float>(1);
  save_safetensors(folder / "x", floats);
  auto doubles = two_parameters<double>(3);
  load_safetensors(folder / "x", doubles);
  for (std::size_t i = 0; i < 2; ++i)
    EXPECT_EQ(xt::xarray<float>(xt::cast<float>(contents(doubles)[i])), contents(floats)[i]);
}

TEST(Safetensors, StrictLoadingNamesEveryFaultAtOnceAndChangesNothing) {
  const TemporaryFolder folder;
  ParameterList<float> file;
  file.emplace_back("extra.one", Parameter<float>({1}));
  file.emplace_back("extra.two", Parameter<float>({1}));
  file.emplace_back("fits", parameter_of(xt::xarray<float>{5}));
  file.emplace_back("misshapen.one", Parameter<float>({2, 3}));
  file.emplace_back("misshapen.two", Parameter<float>({6}));
  save_safetensors(folder / "x", file);

  ParameterList<float> model;
  model.emplace_back("fits", parameter_of(xt::xarray<float>{1}));
  model.emplace_back("misshapen.one", Parameter<float>({3, 2}));
  model.emplace_back("misshapen.two", Parameter<float>({6, 1}));
  model.emplace_back("missing.one", Parameter<float>({1}));
  model.emplace_back("missing.two", Parameter<float>({1}));
  const auto before = contents(model);
  expect_message<FormatError>([&] { load_safetensors(folder / "x", model); },
                              {(folder / "x").c_str(), "missing: missing.one, missing.two", "extra.one, extra.two",
                               "misshapen.one must be (3, 2), got (2, 3)", "misshapen.two must be (6, 1), got (6)"});
  EXPECT_EQ(contents(model), before);
  expect_message<FormatError>([&] { load_safetensors(folder / "x", model, {.strict = false}); },
                              {"misshapen.one", "misshapen.two"});
  EXPECT_EQ(contents(model), before);
}

TEST(Safetensors, LooseLoadingTakesWhatBothSidesHave) {
  const TemporaryFolder folder;
  auto file = two_parameters<float>(1);
  file.emplace_back("extra", Parameter<float>({1}));
  save_safetensors(folder / "x", file);
  auto model = two_parameters<float>(3);
  model.emplace_back("missing", parameter_of(xt::xarray<float>{9}));
  load_safetensors(folder / "x", model, {.strict = false});
  EXPECT_EQ(contents(model)[0], contents(file)[0]);
  EXPECT_EQ(contents(model)[1], contents(file)[1]);
  EXPECT_EQ(model[2].parameter.value()(0), 9.0F);
}

TEST(Safetensors, AnArrayOfAnotherTypeChangesNothingEither) {
  const TemporaryFolder folder;
  const std::vector<float> fits(6, 1);
  const std::vector<std::int64_t> integers(3, 1);
  write_safetensors(folder / "x",
                    {{"a", {2, 3}, std::span<const float>(fits)}, {"b", {3}, std::span<const std::int64_t>(integers)}});
  auto model = two_parameters<float>(1);
  const auto before = contents(model);
  expect_message<FormatError>([&] { load_safetensors(folder / "x", model); }, {"b", "I64"});
  EXPECT_EQ(contents(model), before);
}

/// A parameter that is listed under two names, and one of its own.
ParameterList<float> tied_parameters(std::uint64_t seed) {
  ParameterList<float> list = two_parameters<float>(seed);
  list.emplace_back("tied.a", list[0].parameter);
  return list;
}

TEST(Behaviour, O20_ATiedParameterIsSavedOnceAndStaysTied) {
  const TemporaryFolder folder;
  const auto saved = tied_parameters(1);
  save_safetensors(folder / "x", saved);
  EXPECT_EQ(SafetensorsFile(folder / "x").names(), (std::vector<std::string>{"a", "b"}));
  const auto loaded = tied_parameters(3);
  load_safetensors(folder / "x", loaded);
  EXPECT_EQ(contents(loaded), contents(saved));
  EXPECT_TRUE(loaded[2].parameter.is(loaded[0].parameter));
}

TEST(Behaviour, O20_AFileMayHoldATiedParameterUnderAnyOfItsNames) {
  const TemporaryFolder folder;
  auto file = two_parameters<float>(1);
  file[0].name = "tied.a";
  save_safetensors(folder / "x", file);  // under the second name alone
  const auto model = tied_parameters(3);
  load_safetensors(folder / "x", model);
  EXPECT_EQ(contents(model)[0], contents(file)[0]);

  file.emplace_back("a", parameter_of(contents(file)[0]));  // under both, as a state dict of PyTorch has it
  save_safetensors(folder / "x", file);
  load_safetensors(folder / "x", model);
  EXPECT_EQ(contents(model)[0], contents(file)[0]);

  fill(file[2].parameter, 5.0F);  // two different arrays cannot be one parameter
  save_safetensors(folder / "x", file);
  expect_message<FormatError>([&] { load_safetensors(folder / "x", model); }, {"a and tied.a", "differ in the file"});
  EXPECT_EQ(contents(model)[0], contents(file)[0]);

  ParameterList<float> neither;
  neither.push_back(std::move(file[1]));
  save_safetensors(folder / "x", neither);
  expect_message<FormatError>([&] { load_safetensors(folder / "x", model); }, {"missing: a, tied.a"});
}

TEST(Safetensors, AMissingFileIsNamed) {
  auto model = two_parameters<float>(1);
  expect_message<FormatError>([&] { load_safetensors("no/such/file", model); }, {"no/such/file", "cannot be read"});
  const TemporaryFolder folder;
  expect_message<FormatError>([&] { load_safetensors(folder.path(), model); },
                              {folder.path().c_str(), "cannot be read", "not a regular file"});
  ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);
  expect_message<FormatError>([&] { load_safetensors(folder / "pipe", model); },  // rather than wait for a writer
                              {(folder / "pipe").c_str(), "cannot be read", "not a regular file"});
}

TEST(Safetensors, NamesOfAFileDoNotFloodTheSentence) {
  const TemporaryFolder folder;
  std::vector<NamedArray> arrays;
  const std::vector<float> one = {1};
  for (int i = 0; i < 1000; ++i)
    arrays.push_back({fmt::format("\x1b[2J{:03}{}", i, std::string(200, 'x')), Shape{1}, std::span<const float>(one)});
  write_safetensors(folder / "model.safetensors", arrays);
  const std::string message =
      message_of<FormatError>([&] { load_safetensors(folder / "model.safetensors", ParameterList<float>{}); });
  EXPECT_NE(message.find("?[2J000xxx"), std::string::npos) << message;
  EXPECT_NE(message.find("and 900 more"), std::string::npos) << message;
  EXPECT_EQ(message.find('\x1b'), std::string::npos);
  EXPECT_LT(message.size(), 15'000u);
}

}  // namespace
}  // namespace xtape::safetensors_test
