// The house itself: include directions, and what every file and folder owes its reader. See "Floors" in the README.

#include <fstream>
#include <regex>
#include <set>
#include <sstream>
#include <vector>

#include "support.hpp"

namespace xtape::structure_test {
namespace {

namespace fs = std::filesystem;

const fs::path root = XTAPE_SOURCE_DIR;

std::string read(const fs::path& path) {
  std::ifstream file(path);
  EXPECT_TRUE(file) << "cannot read " << path;
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

std::size_t line_count(const std::string& text) {
  return static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n'));
}

/// The .hpp and .cpp files below some folders, as paths from the root.
std::vector<fs::path> sources(const std::vector<std::string>& folders) {
  std::vector<fs::path> found;
  for (const std::string& folder : folders)
    for (const auto& entry : fs::recursive_directory_iterator(root / folder)) {
      const fs::path extension = entry.path().extension();
      if (extension == ".hpp" || extension == ".cpp") found.push_back(fs::relative(entry.path(), root));
    }
  return found;
}

/// Includes of the project's own files in a text.
std::vector<std::string> includes(const std::string& text) {
  static const std::regex pattern(R"(^[ \t]*#[ \t]*include[ \t]*[<"]xtape/([^>"]+)[>"])", std::regex::multiline);
  std::vector<std::string> found;
  for (std::sregex_iterator match(text.begin(), text.end(), pattern), end; match != end; ++match)
    found.push_back((*match)[1]);
  return found;
}

/// The floor's folder that a file stands in, and the folders that it may include besides its own.
struct Floor {
  std::string folder;
  std::set<std::string> below;
};
const std::vector<Floor> floors = {
    {"framework/base", {}},
    {"framework/kernels", {"framework/base"}},
    {"framework/tape", {"framework/base"}},
    {"framework/ops", {"framework/base", "framework/kernels", "framework/tape"}},
    {"framework/nn", {"framework/base", "framework/tape"}},
    {"framework/train", {"framework/base", "framework/kernels", "framework/tape", "framework/ops", "framework/nn"}},
    {"layers", {"framework/base", "framework/kernels", "framework/tape", "framework/ops", "framework/nn"}},
    {"layers/pretrained",
     {"framework/base", "framework/kernels", "framework/tape", "framework/ops", "framework/nn", "framework/train",
      "layers"}},
};
/// The one header above all floors.
const std::string umbrella = "framework/xtape.hpp";

const Floor* floor_of(const fs::path& file) {
  fs::path parent = file.parent_path();
  if (parent == "framework/train/gradcheck") parent = parent.parent_path();  // parts of one file of that floor
  const std::string folder = parent.generic_string();
  const auto found =
      std::find_if(floors.begin(), floors.end(), [&](const Floor& floor) { return floor.folder == folder; });
  return found == floors.end() ? nullptr : &*found;
}

/// Those includes of a file that its floor does not allow.
std::vector<std::string> forbidden_includes(const fs::path& file, const std::string& text) {
  const Floor* floor = floor_of(file);
  if (floor == nullptr) return {"(" + file.generic_string() + " stands on no floor)"};
  std::vector<std::string> forbidden;
  for (const std::string& include : includes(text)) {
    const Floor* target = floor_of(include);
    if (target == nullptr || (target != floor && floor->below.count(target->folder) == 0)) forbidden.push_back(include);
  }
  return forbidden;
}

TEST(Structure, NoIncludePointsUpwardOrSideways) {
  std::size_t seen = 0;
  for (const fs::path& file : sources({"framework", "layers"})) {
    if (file == umbrella) continue;
    const std::string text = read(root / file);
    seen += includes(text).size();
    for (const std::string& include : forbidden_includes(file, text))
      ADD_FAILURE() << file << " must not include " << include;
  }
  EXPECT_GT(seen, 50u);  // the pattern still finds includes
}

TEST(Structure, AnIncludeThatPointsUpwardOrSidewaysWouldBeSeen) {
  const auto refused = [](const char* file, const char* text) { return forbidden_includes(file, text).size() == 1; };
  EXPECT_TRUE(refused("framework/base/shape.hpp", "#include <xtape/framework/tape/tape.hpp>\n"));
  EXPECT_TRUE(refused("framework/kernels/softmax.cpp", "// softmax\n#include <xtape/framework/tape/var.hpp>\n"));
  EXPECT_TRUE(
      refused("framework/tape/tape.cpp", "#include <vector>\n  #  include \"xtape/framework/kernels/gemm.hpp\"\n"));
  EXPECT_TRUE(refused("framework/nn/initialise.cpp", "#include <xtape/framework/ops/ops.hpp>"));
  EXPECT_TRUE(refused("framework/ops/matmul.cpp", "#include <xtape/framework/nn/parameter_list.hpp>"));
  EXPECT_TRUE(refused("framework/train/optimizer.cpp", "#include <xtape/layers/linear.hpp>"));
  EXPECT_TRUE(refused("layers/linear.hpp", "#include <xtape/framework/train/optimizer.hpp>"));
  EXPECT_TRUE(refused("layers/linear.hpp", "#include <xtape/xtape.hpp>"));
  EXPECT_TRUE(refused("layers/gpt2.hpp", "#include <xtape/layers/pretrained/gpt2.hpp>"));
  EXPECT_TRUE(refused("framework/elsewhere/file.hpp", ""));
  EXPECT_TRUE(
      forbidden_includes("layers/linear.hpp", "#include <xtape/framework/ops/ops.hpp>\n#include <optional>\n").empty());
}

TEST(Structure, OwnFilesAreIncludedByTheirFullNames) {
  // Else the direction of an include could not be read off it.
  const std::regex relative(R"(^[ \t]*#[ \t]*include[ \t]*")", std::regex::multiline);
  for (const fs::path& file : sources({"framework", "layers"}))
    EXPECT_FALSE(std::regex_search(read(root / file), relative)) << file << " includes a file by a relative name";
  EXPECT_TRUE(std::regex_search("#pragma once\n#include \"tape.hpp\"\n", relative));
}

TEST(Structure, HeadersStartWithPragmaOnce) {
  for (const fs::path& file : sources({"framework", "layers", "examples", "tests"})) {
    if (file.extension() != ".hpp") continue;
    EXPECT_EQ(read(root / file).rfind("#pragma once\n", 0), 0u) << file << " does not start with #pragma once";
  }
}

TEST(Structure, FoldersWithSourcesExplainThemselves) {
  std::set<fs::path> folders = {"framework"};
  for (const fs::path& file : sources({"framework", "layers", "examples", "tests"})) folders.insert(file.parent_path());
  for (const fs::path& folder : folders)
    EXPECT_TRUE(fs::exists(root / folder / "README.md")) << folder << " has no README.md";
}

TEST(Structure, FilesStayUnderFourHundredLines) {
  for (const fs::path& file : sources({"framework", "layers", "examples", "tests"}))
    EXPECT_LE(line_count(read(root / file)), 400u) << file << " asks to be split";
}

/// The names of the ops that a header declares; operators under the names that they have on a tape.
std::set<std::string> declared_ops(const std::string& header) {
  static const std::regex pattern(R"((?:Var<T>|AttentionResult<T>|array<Var<T>, N>) (operator.|\w+)\()");
  std::set<std::string> names;
  for (std::sregex_iterator match(header.begin(), header.end(), pattern), end; match != end; ++match) {
    const std::string name = (*match)[1];
    if (name == "operator+")
      names.insert("add");
    else if (name == "operator-")
      names.insert({"subtract", "negate"});
    else if (name == "operator*")
      names.insert("multiply");
    else if (name == "operator/")
      names.insert("divide");
    else
      names.insert(name);
  }
  return names;
}

/// Those ops that the table has no row for.
std::vector<std::string> missing_cases(const std::set<std::string>& ops, const std::string& table) {
  std::vector<std::string> missing;
  for (const std::string& op : ops)
    if (table.find('"' + op + '"') == std::string::npos) missing.push_back(op);
  return missing;
}

std::set<std::string> ops_of_the_catalogue() {
  const std::set<fs::path> inner = {"reference.hpp", "binary_op.hpp"};  // what ops are tested against and made with
  std::string catalogue;
  for (const fs::path& file : sources({"framework/ops"}))
    if (file.extension() == ".hpp" && !inner.contains(file.filename())) catalogue += read(root / file);
  return declared_ops(catalogue);
}

TEST(Structure, EveryOpStandsInTheTableOfCases) {
  const auto ops = ops_of_the_catalogue();
  ASSERT_GE(ops.size(), 60u);  // the pattern still finds declarations
  const auto files = sources({"tests/op_cases"});
  ASSERT_FALSE(files.empty()) << "the table of op cases in tests/op_cases/ is missing";
  std::string table;
  for (const fs::path& file : files) table += read(root / file);
  for (const std::string& op : missing_cases(ops, table))
    ADD_FAILURE() << "tests/op_cases/ has no case \"" << op << '"';
}

TEST(Structure, EveryOpAndEveryLayerStandsInTheTour) {
  std::set<std::string> names = ops_of_the_catalogue();
  for (const char* sign : {"add", "subtract", "negate", "multiply", "divide"}) names.erase(sign);  // shown as signs
  static const std::regex layer(R"(^struct (\w+) \{)", std::regex::multiline);
  for (const fs::path& file : sources({"layers"})) {
    if (file.extension() != ".hpp") continue;
    const std::string text = read(root / file);
    for (std::sregex_iterator match(text.begin(), text.end(), layer), end; match != end; ++match)
      if (!(*match)[1].str().ends_with("Options")) names.insert((*match)[1]);
  }
  EXPECT_TRUE(names.contains("Linear"));
  const std::string tour = read(root / "layers/README.md");
  for (const std::string& name : names)
    EXPECT_TRUE(std::regex_search(tour, std::regex("\\b" + name + "\\b"))) << "layers/README.md does not list " << name;
}

TEST(Structure, AnOpWithoutACaseWouldBeSeen) {
  const auto ops = declared_ops(
      "template <class T>\nVar<T> exp(Var<T> x);\n"
      "template <class T> Var<T> operator-(Var<T> x);\n"
      "AttentionResult<T> attention_with_weights(Var<T> q);\n");
  EXPECT_EQ(ops, (std::set<std::string>{"exp", "subtract", "negate", "attention_with_weights"}));
  EXPECT_EQ(missing_cases(ops, R"({"exp", ...}, {"subtract"}, {"attention_with_weights"}, negate)"),
            std::vector<std::string>{"negate"});
}

TEST(Structure, TheReadmesExampleIsTheOneThatIsCompiled) {
  const std::string readme = read(root / "README.md"), program = read(root / "tests/install/snake_mlp.cpp");
  const std::size_t begin = readme.find("```cpp\n") + 7, end = readme.find("```", begin);
  ASSERT_NE(end, std::string::npos);
  std::istringstream example(readme.substr(begin, end - begin));
  std::size_t lines = 0;
  for (std::string line; std::getline(example, line); ++lines)
    EXPECT_NE(program.find(line + "\n"), std::string::npos) << line;
  EXPECT_GE(lines, 25u);
}

}  // namespace
}  // namespace xtape::structure_test
