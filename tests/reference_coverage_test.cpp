// No reference file is forgotten, and the measure by which the others are compared sees faults.

#include <algorithm>
#include <fstream>
#include <iterator>

#include "reference_case.hpp"

namespace xtape::reference_coverage_test {
namespace {

std::set<std::string> reference_files() {
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(reference_folder()))
    if (entry.path().extension() == ".safetensors") names.insert(entry.path().stem());
  return names;
}

/// The sources of the other reference tests, one after another.
std::string test_sources() {
  const std::filesystem::path self = std::filesystem::path(__FILE__).filename();
  std::string text;
  for (const auto& entry : std::filesystem::directory_iterator(std::filesystem::path(XTAPE_SOURCE_DIR) / "tests")) {
    const std::string name = entry.path().filename();
    if (name == self || name.find("reference") == std::string::npos || !name.ends_with("_test.cpp")) continue;
    std::ifstream source(entry.path());
    text.append(std::istreambuf_iterator<char>(source), {});
  }
  return text;
}

TEST(ReferenceCoverage, EveryFileIsTested) {
  const std::string sources = test_sources();
  const auto files = reference_files();
  ASSERT_FALSE(files.empty());
  for (const std::string& file : files)
    EXPECT_NE(sources.find('"' + file + '"'), std::string::npos) << file << " is not tested";
}

TEST(ReferenceCoverage, AFileThatNobodyNamesWouldBeSeen) {
  EXPECT_EQ(test_sources().find("\"a_file_of_tomorrow\""), std::string::npos);
  EXPECT_NE(test_sources().find("\"decoder_training\""), std::string::npos);
}

// ---- the measure

TEST(ReferenceMeasure, SeesAValueThatIsABillionthOff) {
  const xt::xarray<double> right = ReferenceFile("gelu").array<double>("output");
  EXPECT_TRUE(near(right, right, tolerance::reference));
  xt::xarray<double> wrong = right;
  wrong(2, 6) += 1e-9;
  EXPECT_FALSE(near(wrong, right, tolerance::reference));
}

TEST(ReferenceMeasure, SeesAWrongShape) {
  const xt::xarray<double> right = ones_of<double>({2, 3}), turned = ones_of<double>({3, 2});
  const xt::xarray<double> row = ones_of<double>({1, 3}), nothing = ones_of<double>({0, 3});
  EXPECT_TRUE(near(right, right, tolerance::reference));
  EXPECT_FALSE(near(turned, right, tolerance::reference));
  EXPECT_FALSE(near(row, right, tolerance::reference));  // would broadcast
  EXPECT_FALSE(near(nothing, right, tolerance::reference));
}

TEST(ReferenceMeasure, SeesNaNAndInfinity) {
  const xt::xarray<double> right = ones_of<double>({2, 3});
  for (const double bad : {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
    xt::xarray<double> wrong = right;
    wrong(1, 1) = bad;
    EXPECT_FALSE(near(wrong, right, tolerance::reference_training)) << bad;
    EXPECT_FALSE(near(right, wrong, tolerance::reference_training)) << bad;
  }
}

}  // namespace
}  // namespace xtape::reference_coverage_test
