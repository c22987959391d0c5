// Files that are cut, wrong or hostile (case O31). What is allocated is counted by the operators new below.

#include <atomic>
#include <new>

#include "behaviour.hpp"
#include "files.hpp"

/// The body of the fuzzer, linked in from tests/fuzz/.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace {
std::atomic<std::size_t> allocated = 0, largest = 0;
}

void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  allocated += bytes;
  if (bytes > largest) largest = bytes;
  return std::malloc(bytes > 0 ? bytes : 1);
}
void* operator new(std::size_t bytes) {
  if (void* p = operator new(bytes, std::nothrow)) return p;
  throw std::bad_alloc();
}
void* operator new[](std::size_t bytes) { return operator new(bytes); }
// Not inline, or the compiler sees free next to new and warns.
[[gnu::noinline]] void operator delete(void* p) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete[](void* p) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete(void* p, std::size_t) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete[](void* p, std::size_t) noexcept { std::free(p); }

namespace xtape::behaviour_hostile_file_test {
namespace {

/// Buffers of the file stream, the JSON parser's tables and the message: far below what a hostile header asks for.
constexpr std::size_t constant = 256 * 1024;

TEST(Behaviour, O31_TheCounterSeesAnAllocation) {
  const std::size_t before = allocated;
  const std::vector<char> buffer(2 * constant);
  EXPECT_GE(allocated, before + buffer.size());
}

/// The bytes must be refused with the file's name and the reason, at no more memory than the file itself asks for.
void expect_refused(const std::string& bytes, const char* reason) {
  SCOPED_TRACE(bytes.substr(0, 100));
  const TemporaryFolder folder;
  const auto path = folder / "hostile.safetensors";
  write_bytes(path, bytes);
  largest = 0;
  const std::size_t before = allocated;
  const std::string message = message_of<FormatError>([&] { SafetensorsFile file(path); });
  EXPECT_LE(allocated - before, 64 * bytes.size() + constant);
  EXPECT_LE(largest, 4 * bytes.size() + constant);
  EXPECT_NE(message.find(path.string()), std::string::npos) << message;
  EXPECT_NE(message.find(reason), std::string::npos) << message;
  EXPECT_LT(message.size(), 1000U);

  ParameterList<float> list;
  list.emplace_back("a", parameter_of(xt::xarray<float>{1, 2}));
  EXPECT_THROW(load_safetensors(path, list), FormatError);
  EXPECT_EQ(values_of(list[0].parameter), (xt::xarray<float>{1, 2}));
}

/// One array "a" with the given dtype, shape and offsets, and eight bytes of data.
std::string one_entry(const std::string& dtype, const std::string& shape, const std::string& offsets) {
  return safetensors(R"({"a":{"dtype":)" + dtype + R"(,"shape":)" + shape + R"(,"data_offsets":)" + offsets + "}}",
                     "12345678");
}

TEST(Behaviour, O31_TheUndamagedFileIsRead) {
  const TemporaryFolder folder;
  write_bytes(folder / "x", one_entry(R"("F32")", "[2]", "[0,8]"));
  EXPECT_EQ(SafetensorsFile(folder / "x").read<float>("a").size(), 2U);
}

TEST(Behaviour, O31_HostileLengthField) {
  const std::string good = one_entry(R"("F32")", "[2]", "[0,8]");
  expect_refused("", "at least 8 bytes");
  expect_refused("1234567", "at least 8 bytes");
  expect_refused(length_field(0), "JSON object");
  expect_refused(length_field(2), "claims 2 bytes");
  for (const std::uint64_t length : {~std::uint64_t{0}, ~std::uint64_t{0} - 7, std::uint64_t{1} << 63,
                                     std::uint64_t{1} << 32, good.size() - 7, std::uint64_t{100'000'001}})
    expect_refused(length_field(length) + good.substr(8), "claims");
}

TEST(Behaviour, O31_AHeaderOverTheCapIsNotRead) {
  const TemporaryFolder folder;
  const auto path = folder / "large.safetensors";
  write_bytes(path, length_field(100'000'001));
  std::filesystem::resize_file(path, 200'000'000);  // sparse: takes no room
  largest = 0;
  expect_message<FormatError>([&] { SafetensorsFile file(path); },
                              {path.c_str(), "claims 100000001 bytes", "at most 100000000"});
  EXPECT_LE(largest, constant);
}

TEST(Behaviour, O31_AHeaderThatIsNotAnObject) {
  for (const char* header : {"", " ", "hello", "[]", "42", "\"a\"", "null"})
    expect_refused(safetensors(header), "JSON object");
  for (const char* header : {"{", "{]", "{\"a\"}", "{\"a\":}", "{}}", "{} x", "{'a':1}", "{\"__metadata__\":{},}",
                             "{\"\xff\":1}", "{\"a\":1e999}"})
    expect_refused(safetensors(header), "not valid JSON");
  expect_refused(safetensors(std::string("{}\0\0", 4)), "not valid JSON");
}

TEST(Behaviour, O31_DeeplyNestedHeaders) {
  const std::string deep(200'000, '[');
  expect_refused(safetensors("{\"a\":" + deep), "entry of a must be an object, got a list");
  expect_refused(one_entry(R"("F32")", deep, "[0,8]"), "entry of a must hold a list of whole numbers as its shape");
  std::string objects, texts = R"({"__metadata__":)";
  for (int i = 0; i < 50'000; ++i) objects += R"({"dtype":)", texts += R"({"a":)";
  expect_refused(safetensors(R"({"a":)" + objects), "entry of a must hold a text as its dtype, got an object");
  expect_refused(safetensors(texts), "__metadata__ must be an object of texts, got an object for \"a\"");
}

TEST(Behaviour, O31_LongListsAreNotBuiltUp) {
  std::string zeros = "0";
  for (int i = 0; i < 100'000; ++i) zeros += ",0";
  expect_refused(one_entry(R"("F32")", "[" + zeros + "]", "[0,8]"), "entry of a holds a list that is too long");
  expect_refused(one_entry(R"("F32")", "[2]", "[" + zeros + "]"), "entry of a holds a list that is too long");
  std::string extents = "8";
  for (int i = 1; i < 64; ++i) extents += ",1";
  const TemporaryFolder folder;
  write_bytes(folder / "x", one_entry(R"("U8")", "[" + extents + "]", "[0,8]"));
  EXPECT_EQ(SafetensorsFile(folder / "x").shape("a").size(), 64U);
  expect_refused(one_entry(R"("U8")", "[" + extents + ",1]", "[0,8]"), "entry of a holds a list that is too long");
}

TEST(Behaviour, O31_EntriesOfTheWrongKind) {
  for (const char* entry : {"1", "null", "[]", "\"F32\""})
    expect_refused(safetensors(std::string("{\"a\":") + entry + "}", "12345678"), "entry of a must be an object");
  for (const char* entry : {"{}", R"({"dtype":"F32","shape":[2]})", R"({"dtype":"F64","data_offsets":[0,8]})",
                            R"({"shape":[2],"data_offsets":[0,8]})"})
    expect_refused(safetensors(std::string("{\"a\":") + entry + "}", "12345678"), "entry of a must hold dtype");
  for (const char* more : {"1", "null", "\"F32\"", "[2]", "{}"})
    expect_refused(
        safetensors(fmt::format(R"({{"a":{{"dtype":"F32","more":{},"shape":[2],"data_offsets":[0,8]}}}})", more),
                    "12345678"),
        "entry of a must hold dtype, shape and data_offsets alone, got \"more\"");
  for (const char* dtype : {"1", "null", "[\"F32\"]"}) expect_refused(one_entry(dtype, "[2]", "[0,8]"), "entry of a");
  for (const char* shape : {"2", "[-2]", "[2.0]", "[\"2\"]", "{}", "null", "[18446744073709551616]", "[true]"})
    expect_refused(one_entry(R"("F32")", shape, "[0,8]"), "entry of a");
  for (const char* offsets :
       {"8", "[8]", "[0,8,8]", "[-1,8]", "[0,-8]", "[0.0,8]", "[0,8.0]", "[0,\"8\"]", "[0,1e1]", "null"})
    expect_refused(one_entry(R"("F32")", "[2]", offsets), "entry of a");
  for (const char* dtype : {R"("")", R"("f32")", R"("F128")", R"("F32 ")"})
    expect_refused(one_entry(dtype, "[2]", "[0,8]"), "unknown type");
}

TEST(Behaviour, O31_OffsetsAndSizesThatDoNotFit) {
  const std::string f32 = R"("F32")";
  expect_refused(one_entry(f32, "[2]", "[0,9]"), "within 8 bytes");
  expect_refused(one_entry(f32, "[2]", "[8,0]"), "within 8 bytes");
  expect_refused(one_entry(f32, "[2]", "[18446744073709551608,18446744073709551615]"), "within 8 bytes");
  for (const char* shape : {"[1]", "[3]", "[]", "[0]", "[2,2]", "[4611686018427387906]", "[4294967296,4294967296]",
                            "[9223372036854775808,2,1]", "[18446744073709551615]"})
    expect_refused(one_entry(f32, shape, "[0,8]"), "a of shape");  // 2^62 + 2 elements of 4 bytes would wrap to 8
  expect_refused(one_entry(R"("F64")", "[2]", "[0,8]"), "a of shape (2) and type F64 does not fill [0, 8)");
  expect_refused(one_entry(f32, "[1]", "[0,4]"), "expected 4 bytes of data, got 8");  // trailing bytes
  expect_refused(one_entry(f32, "[1]", "[4,8]"), "without hole or overlap, but a begins at 4");
  expect_refused(safetensors("{}", "1"), "expected 0 bytes of data, got 1");
}

std::string entry(const std::string& name, const std::string& dtype, const std::string& shape,
                  const std::string& offsets) {
  return fmt::format(R"("{}":{{"dtype":"{}","shape":{},"data_offsets":{}}})", name, dtype, shape, offsets);
}

/// A file of two entries and eight bytes of data.
std::string both(const std::string& first, const std::string& second) {
  return safetensors("{" + first + "," + second + "}", "12345678");
}

/// Two arrays "a" and "b" of one float each at the given offsets.
std::string two_entries(const std::string& a, const std::string& b, const std::string& second_name = "b") {
  return both(entry("a", "F32", "[1]", a), entry(second_name, "F32", "[1]", b));
}

TEST(Behaviour, O31_HolesOverlapsAndNamesThatComeTwice) {
  expect_refused(two_entries("[0,4]", "[0,4]"), "overlap, but b begins at 0 and what is before it ends at 4");
  expect_refused(both(entry("a", "F32", "[2]", "[0,8]"), entry("b", "F32", "[1]", "[4,8]")),
                 "overlap, but b begins at 4");
  expect_refused(both(entry("a", "U8", "[3]", "[0,3]"), entry("b", "F32", "[1]", "[4,8]")),
                 "without hole or overlap, but b begins at 4");
  expect_refused(two_entries("[0,4]", "[4,8]", "a"), "names \"a\" twice");
  const TemporaryFolder folder;  // in any order is well
  write_bytes(folder / "x", two_entries("[4,8]", "[0,4]"));
  EXPECT_EQ(SafetensorsFile(folder / "x").names().size(), 2U);
}

TEST(Behaviour, O31_NamesThatComeTwiceUnderAnotherSpelling) {
  expect_refused(two_entries("[0,4]", "[4,8]", R"(\u0061)"), "names \"a\" twice");
  expect_refused(safetensors(R"({"__metadata__":{},"\u005f_metadata__":{}})"), "names \"__metadata__\" twice");
  expect_refused(safetensors(R"({"__metadata__":{"k":"1","\u006B":"2"}})"), "__metadata__ names \"k\" twice");
  for (const char* field : {R"("dtype":"F32")", R"("shape":[2])", R"("data_offsets":[0,8])", R"("\u0073hape":[2])"})
    expect_refused(
        safetensors(fmt::format(R"({{"a":{{"dtype":"F32","shape":[2],"data_offsets":[0,8],{}}}}})", field), "12345678"),
        "entry of a names");
}

TEST(Behaviour, O31_MetadataIsText) {
  for (const char* metadata : {"[]", "null", "1", "\"text\"", "true"})
    expect_refused(safetensors(fmt::format(R"({{"__metadata__":{}}})", metadata)), "__metadata__ must be an object");
  for (const char* value : {"1", "-1", "1.5", "null", "true", "[]", "[\"text\"]", "{}"})
    expect_refused(safetensors(fmt::format(R"({{"__metadata__":{{"step":{}}}}})", value)), "for \"step\"");
}

TEST(Behaviour, O31_WhatStandsBesideTheObject) {
  const std::string entry_of_a = entry("a", "F32", "[2]", "[0,8]");
  const TemporaryFolder folder;
  write_bytes(folder / "x", safetensors("{" + entry_of_a + "}     ", "12345678"));  // spaces may fill the header up
  EXPECT_TRUE(SafetensorsFile(folder / "x").contains("a"));
  for (const std::string before : {" ", "\n", "\xEF\xBB\xBF", "1"})  // also a byte order mark
    expect_refused(safetensors(before + "{" + entry_of_a + "}", "12345678"), "begin with {");
  for (const std::string after : {"x", "{}", ",", "  0", "/**/", "\xA0"})
    expect_refused(safetensors("{" + entry_of_a + "}" + after, "12345678"), "not valid JSON");
  expect_refused(safetensors("{" + entry_of_a + std::string("}\0", 2), "12345678"), "zero byte");
}

TEST(Behaviour, O31_NamesThatAreNotUtf8) {
  for (const char* name :
       {"\xFF", "\xC3", "\xC0\x80", "\xED\xA0\x80", "\xF4\x90\x80\x80", R"(\ud800)", R"(\udc00)", "\t"})
    expect_refused(safetensors("{" + entry(name, "F32", "[2]", "[0,8]") + "}", "12345678"), "not valid JSON");
  const TemporaryFolder folder;
  for (const char* name : {"\xF0\x9F\x90\x94", R"(\ud83d\udc14)", R"(\u0000)", R"(\"\\\/)", ""}) {
    write_bytes(folder / "x", safetensors("{" + entry(name, "F32", "[2]", "[0,8]") + "}", "12345678"));
    const SafetensorsFile file(folder / "x");
    EXPECT_EQ(file.read<float>(file.names().at(0)).size(), 2U);
  }
}

TEST(Behaviour, O31_LongTextOfAFileDoesNotFloodTheMessage) {
  const std::string name(100'000, 'n');
  std::string wide;
  for (int i = 0; i < 50'000; ++i) wide += "\xC3\xA4";
  expect_refused(both(entry(name, "F32", "[1]", "[0,4]"), entry(name, "F32", "[1]", "[4,8]")), "nnn...\" twice");
  expect_refused(safetensors("{" + entry(wide, "F32", "[1]", "[0,8]") + "}", "12345678"), "\xC3\xA4... of shape");
  expect_refused(one_entry('"' + name + '"', "[2]", "[0,8]"), "a has the unknown type \"nnn");
  expect_refused(safetensors("{\"" + name + "\x01\":"), "not valid JSON");
  expect_refused(safetensors(R"({"a\u001b[2J":1})"), "the entry of a?[2J must be an object");  // no terminal is cleared
}

TEST(Behaviour, O31_MemoryGrowsWithTheFileAlone) {
  std::string arrays = "{";  // as small as entries can be, and no end
  for (int i = 0; i < 20'000; ++i) arrays += entry(std::to_string(i), "U8", "[0]", "[0,0]") + ",";
  expect_refused(safetensors(arrays), "not valid JSON");
  std::string texts = R"({"__metadata__":{"":"")";
  for (int i = 0; i < 20'000; ++i) texts += fmt::format(R"(,"{}":"")", i);
  expect_refused(safetensors(texts), "not valid JSON");
}

TEST(Behaviour, O31_AFileCutAnywhere) {
  const std::string good = two_entries("[0,4]", "[4,8]");
  for (std::size_t size = 0; size < good.size(); ++size) expect_refused(good.substr(0, size), "");
}

TEST(Behaviour, O31_AFileCutWhileItIsOpen) {
  const TemporaryFolder folder;
  write_bytes(folder / "x", two_entries("[0,4]", "[4,8]"));
  const SafetensorsFile file(folder / "x");
  std::filesystem::resize_file(folder / "x", std::filesystem::file_size(folder / "x") - 2);
  for (const char* name : {"a", "b"})
    expect_message<FormatError>([&] { file.read<float>(name); },
                                {(folder / "x").c_str(), "cannot be read", "bytes when it was opened"});
  std::filesystem::resize_file(folder / "x", 0);
  expect_message<FormatError>([&] { file.read<float>("a"); }, {"cannot be read", "now has 0"});
}

/// One random damage: a byte, a digit or mark of the header, a piece removed or doubled, the length, the end.
std::string damaged(std::string bytes, Rng& rng) {
  const auto place = [&] { return rng.below(bytes.size()); };
  switch (rng.below(6)) {
    case 0:
      bytes[place()] = static_cast<char>(rng.below(256));
      break;
    case 1:
      bytes[8 + rng.below(bytes.size() - 8)] = "0123456789-.,:[]{}\"eE \\/"[rng.below(24)];
      break;
    case 2:
      bytes.erase(place(), 1 + rng.below(20));
      break;
    case 3: {
      const std::string piece = bytes.substr(place(), 1 + rng.below(40));
      bytes.insert(place(), piece);
      break;
    }
    case 4:
      bytes.replace(0, 8, length_field(rng.below(2) == 0 ? rng.below(2 * bytes.size()) : rng.bits()));
      break;
    case 5:
      bytes.resize(rng.below(bytes.size() + 20));
      break;
  }
  return bytes;
}

TEST(Behaviour, O31_RandomDamageIsReadOrRefused) {
  const TemporaryFolder folder;
  const auto path = folder / "x";
  ParameterList<float> list;
  list.emplace_back("a", parameter_of(xt::xarray<float>{{1, 2, 3}, {4, 5, 6}}));
  list.emplace_back("b.weight", parameter_of(xt::xarray<float>{7, 8}));
  save_safetensors(path, list, {{"step", "12"}});
  const std::string good = read_bytes(path);
  Rng rng(1);
  std::size_t read = 0, refused = 0;
  for (int round = 0; round < 5000; ++round) {
    std::string bytes = damaged(good, rng);
    if (rng.below(3) == 0 && bytes.size() > 16) bytes = damaged(bytes, rng);
    write_bytes(path, bytes);
    fill(list[0].parameter, 1.0F), fill(list[1].parameter, 1.0F);
    const std::size_t before = allocated;
    try {
      const SafetensorsFile file(path);
      for (const auto& name : file.names())
        if (file.dtype(name) == "F32") file.read<float>(name);
      load_safetensors(path, list);
      ++read;
    } catch (const FormatError& error) {
      EXPECT_NE(std::string(error.what()).find(path.string()), std::string::npos);
      EXPECT_TRUE(xt::all(xt::equal(list[0].parameter.value(), 1.0F)) &&
                  xt::all(xt::equal(list[1].parameter.value(), 1.0F)));
      ++refused;
    }
    ASSERT_LE(allocated - before, 64 * bytes.size() + constant);
  }
  EXPECT_GT(read, 100U);
  EXPECT_GT(refused, 1000U);
}

TEST(Behaviour, O31_EveryFileOfTheFuzzersCorpus) {
  std::size_t files = 0;
  for (const auto& entry :
       std::filesystem::directory_iterator(std::filesystem::path(XTAPE_SOURCE_DIR) / "tests/fuzz/corpus")) {
    SCOPED_TRACE(entry.path());
    const std::string bytes = read_bytes(entry.path());
    LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size());
    try {
      const SafetensorsFile file(entry.path());
      for (const auto& name : file.names())
        EXPECT_THROW((file.read<float>(name), file.read<std::int64_t>(name)), FormatError);
    } catch (const FormatError& error) {
      EXPECT_NE(std::string(error.what()).find(entry.path().string()), std::string::npos);
    }
    ++files;
  }
  EXPECT_GE(files, 20U);
}

}  // namespace
}  // namespace xtape::behaviour_hostile_file_test
