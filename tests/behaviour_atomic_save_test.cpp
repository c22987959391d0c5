// A save that fails leaves the last good file (case O32).

#include <sched.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include "behaviour.hpp"
#include "failing_writes.hpp"
#include "files.hpp"

namespace xtape::behaviour_atomic_save_test {
namespace {

ParameterList<double> one_parameter(double value) {
  ParameterList<double> list;
  list.emplace_back("weight", parameter_of(xt::xarray<double>(value * ones_of<double>({10}))));
  return list;
}

/// Saves over an old file on disks that are full after every `step` bytes.
void expect_old_or_new(const ParameterList<double>& before, const ParameterList<double>& after, SaveOptions options,
                       std::size_t step) {
  const TemporaryFolder folder;
  const auto path = folder / "model.safetensors";
  const Metadata metadata = {{"step", "12"}};
  save_safetensors(path, before, metadata, options);
  const std::string old = read_bytes(path);
  for (std::size_t bytes = 0; bytes < old.size(); bytes += step) {
    std::string message;
    {
      const FileSizeLimit limit(bytes);
      message = message_of<Error>([&] { save_safetensors(path, after, metadata, options); });
    }
    ASSERT_NE(message.find(path.string() + " cannot be written"), std::string::npos) << message;
    ASSERT_EQ(read_bytes(path), old) << "after " << bytes << " bytes";
    ASSERT_EQ(folder.entries(), 1U) << "after " << bytes << " bytes";
  }
  const FileSizeLimit enough(old.size());
  save_safetensors(path, after, metadata, options);
  EXPECT_NE(read_bytes(path), old);
  EXPECT_EQ(folder.entries(), 1U);
}

TEST(Behaviour, O32_ADiskThatIsFullAfterAnyByte) {
  expect_old_or_new(one_parameter(1), one_parameter(2), {}, 1);
  expect_old_or_new(one_parameter(1), one_parameter(2), {.dtype = Dtype::F16}, 1);
}

TEST(Behaviour, O32_ADiskThatIsFullInTheMiddleOfALargeArray) {
  ParameterList<double> before, after;
  before.emplace_back("weight", Parameter<double>({40'000}));
  after.emplace_back("weight", Parameter<double>({40'000}));
  fill(after[0].parameter, 1.0);
  for (const Dtype dtype : {Dtype::F64, Dtype::BF16}) expect_old_or_new(before, after, {.dtype = dtype}, 9'999);
}

/// A small file system over a folder, which only this process sees and which ends with it. Not every user may have one.
class SmallDisk {
 public:
  explicit SmallDisk(std::filesystem::path folder) : folder_(std::move(folder)) {
    mounted_ = ::unshare(CLONE_NEWNS) == 0 && ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
               ::mount("tmpfs", folder_.c_str(), "tmpfs", 0, "size=64k") == 0;
  }
  SmallDisk(const SmallDisk&) = delete;
  SmallDisk& operator=(const SmallDisk&) = delete;
  ~SmallDisk() {
    if (mounted_) ::umount(folder_.c_str());
  }
  bool mounted() const { return mounted_; }

 private:
  std::filesystem::path folder_;
  bool mounted_;
};

TEST(Behaviour, O32_ADiskWithoutRoomForASecondFile) {
  const TemporaryFolder folder;
  const SmallDisk disk(folder.path());
  if (!disk.mounted()) GTEST_SKIP() << "this user may not mount a file system";
  const auto path = folder / "model.safetensors";
  ParameterList<double> list;
  list.emplace_back("weight", Parameter<double>({5'000}));  // 40 of the 64 kB
  save_safetensors(path, list);
  const std::string old = read_bytes(path);
  fill(list[0].parameter, 1.0);
  expect_message<Error>([&] { save_safetensors(path, list); },
                        {path.c_str(), "cannot be written: No space left on device"});
  EXPECT_EQ(read_bytes(path), old);
  EXPECT_EQ(folder.entries(), 1U);
  save_safetensors(path, list, {}, {.dtype = Dtype::BF16});  // a quarter of the size finds room
  EXPECT_EQ(SafetensorsFile(path).read<double>("weight"), std::vector<double>(5'000, 1.0));
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
