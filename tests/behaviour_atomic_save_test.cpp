// A save that fails leaves the last good file (case O32).

#include "behaviour.hpp"
#include "failing_writes.hpp"
#include "files.hpp"

namespace xtape::behaviour_atomic_save_test {
namespace {

ParameterList<double> one_parameter(double value) {
  ParameterList<double> list;
  list.emplace_back("weight", parameter_of(xt::xarray<double>(value * xt::ones<double>({10}))));
  return list;
}

TEST(Behaviour, O32_ADiskThatIsFullAfterAnyByte) {
  const TemporaryFolder folder;
  const auto path = folder / "model.safetensors";
  save_safetensors(path, one_parameter(1));
  const std::string old = read_bytes(path);
  const auto changed = one_parameter(2);
  for (std::size_t bytes = 0; bytes < old.size(); ++bytes) {
    std::string message;
    {
      const FileSizeLimit limit(bytes);
      message = message_of<Error>([&] { save_safetensors(path, changed); });
    }
    ASSERT_NE(message.find(path.string() + " cannot be written"), std::string::npos) << message;
    ASSERT_EQ(read_bytes(path), old) << "after " << bytes << " bytes";
    ASSERT_EQ(folder.entries(), 1U) << "after " << bytes << " bytes";
  }
  const FileSizeLimit enough(old.size());
  save_safetensors(path, changed);
  EXPECT_NE(read_bytes(path), old);
  EXPECT_EQ(folder.entries(), 1U);
}

TEST(Behaviour, O32_AProcessThatDiesAfterAnyByte) {
  const TemporaryFolder folder;
  const auto path = folder / "model.safetensors";
  save_safetensors(path, one_parameter(1));
  const std::string old = read_bytes(path);
  const auto changed = one_parameter(2);
  for (std::size_t bytes = 0; bytes < old.size(); bytes += 7) {
    ASSERT_TRUE(dies_after(bytes, [&] { save_safetensors(path, changed); })) << "after " << bytes << " bytes";
    ASSERT_EQ(read_bytes(path), old) << "after " << bytes << " bytes";
  }
  save_safetensors(path, changed);  // what the dead ones left behind is not in the way
  auto loaded = one_parameter(0);
  load_safetensors(path, loaded);
  EXPECT_EQ(values_of(loaded[0].parameter), values_of(changed[0].parameter));
}

TEST(Behaviour, O32_PlacesThatCannotBeWritten) {
  const TemporaryFolder folder;
  const auto list = one_parameter(1);
  const auto refused = [&](const std::filesystem::path& path) {
    expect_message<Error>([&] { save_safetensors(path, list); }, {path.c_str(), "cannot be written"});
  };
  refused(folder / "missing" / "model.safetensors");
  write_bytes(folder / "file", "x");
  refused(folder / "file" / "model.safetensors");
  std::filesystem::create_directories(folder / "taken" / "inside");  // rename cannot replace it
  refused(folder / "taken");
  EXPECT_EQ(read_bytes(folder / "file"), "x");
  EXPECT_EQ(folder.entries(), 2U);
}

TEST(Behaviour, O32_AFolderThatMayNotBeWritten) {
  const TemporaryFolder folder;
  const auto path = folder / "model.safetensors";
  save_safetensors(path, one_parameter(1));
  const std::string old = read_bytes(path);
  std::filesystem::permissions(folder.path(), static_cast<std::filesystem::perms>(0555));
  {
    const WithoutPrivileges guard;
    EXPECT_THROW(save_safetensors(path, one_parameter(2)), Error);
  }
  std::filesystem::permissions(folder.path(), std::filesystem::perms::owner_all);
  EXPECT_EQ(read_bytes(path), old);
  EXPECT_EQ(folder.entries(), 1U);
}

TEST(Behaviour, O32_AFaultInTheArraysLeavesTheOldFile) {
  const TemporaryFolder folder;
  const auto path = folder / "model.safetensors";
  save_safetensors(path, one_parameter(1));
  const std::string old = read_bytes(path);
  const float one = 1;
  EXPECT_THROW(write_safetensors(path, {{"a", {7}, std::span<const float>(&one, 1)}}), ShapeError);
  EXPECT_EQ(read_bytes(path), old);
  EXPECT_EQ(folder.entries(), 1U);
}

TEST(Behaviour, O32_AFileInTheWorkingFolder) {
  const TemporaryFolder folder;
  const auto before = std::filesystem::current_path();
  std::filesystem::current_path(folder.path());
  save_safetensors("model.safetensors", one_parameter(3));  // a path without a folder
  std::filesystem::current_path(before);
  EXPECT_EQ(SafetensorsFile(folder / "model.safetensors").read<double>("weight"), std::vector<double>(10, 3.0));
}

}  // namespace
}  // namespace xtape::behaviour_atomic_save_test
