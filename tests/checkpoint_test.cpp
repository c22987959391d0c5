// Checkpoints are whole, or are not seen.

#include <xtape/framework/train/checkpoint.hpp>

#include <array>
#include <set>

#include "failing_writes.hpp"
#include "files.hpp"

namespace xtape::checkpoint_test {
namespace {

namespace fs = std::filesystem;

template <class T>
ParameterList<T> one(const std::string& name, T value, const Shape& shape = {2, 3}) {
  ParameterList<T> list;
  list.emplace_back(name, Parameter<T>(shape));
  fill(list[0].parameter, value);
  return list;
}

/// A run whose numbers are those of its step.
struct SavedRun {
  TemporaryFolder folder;
  const fs::path& path() const { return folder.path(); }
  fs::path of(std::uint64_t step) const { return folder / fmt::format("checkpoint-{}", step); }
  static std::string state(std::uint64_t step) { return fmt::format("{{\"step\": {}}}\n", step); }
  void save(std::uint64_t step, CheckpointOptions options = {.keep = 100}) const {
    const double value = static_cast<double>(step);
    save_checkpoint(path(), step, one("weight", value), one("exp_avg.weight", -value), state(step), options);
  }
  /// True if the checkpoint loads, and has the numbers of its step.
  bool holds(const fs::path& checkpoint, std::uint64_t step) const {
    auto model = one("weight", 0.5), optimizer = one("exp_avg.weight", 0.5);
    const std::string loaded = load_checkpoint(checkpoint, model, optimizer);
    const double value = static_cast<double>(step);
    return loaded == state(step) && model[0].parameter.data()[5] == value && optimizer[0].parameter.data()[0] == -value;
  }
  std::set<std::string> names() const {
    std::set<std::string> found;
    for (const auto& entry : fs::directory_iterator(path())) found.insert(entry.path().filename().string());
    return found;
  }
};

using Names = std::set<std::string>;

TEST(Checkpoint, GivesBackWhatWasSaved) {
  const SavedRun run;
  run.save(7, {.best = true});
  run.save(9);
  EXPECT_TRUE(run.holds(run.of(7), 7));
  EXPECT_TRUE(run.holds(run.of(9), 9));
  EXPECT_EQ(latest_checkpoint(run.path()), run.of(9));
  EXPECT_EQ(best_checkpoint(run.path()), run.of(7));
  EXPECT_EQ(checkpoint_state(run.of(9)), SavedRun::state(9));
  EXPECT_EQ(run.names(), (Names{"best", "checkpoint-7", "checkpoint-9", "latest"}));

  const TemporaryFolder folder;  // in float
  save_checkpoint(folder.path(), 1, one("w", 0.1f), one("m", 0.2f), "any text");
  auto model = one("w", 0.f), optimizer = one("m", 0.f);
  EXPECT_EQ(load_checkpoint(folder / "checkpoint-1", model, optimizer), "any text");
  EXPECT_EQ(model[0].parameter.data()[0], 0.1f);
}

TEST(Checkpoint, TheNewestAndTheBestStay) {
  const SavedRun run;
  run.save(1, {.keep = 2});
  run.save(2, {.keep = 2, .best = true});
  for (std::uint64_t step = 3; step <= 6; ++step) run.save(step, {.keep = 2});
  EXPECT_EQ(run.names(), (Names{"best", "checkpoint-2", "checkpoint-5", "checkpoint-6", "latest"}));
  EXPECT_TRUE(run.holds(best_checkpoint(run.path()), 2));
  run.save(7, {.keep = 1, .best = true});
  EXPECT_EQ(run.names(), (Names{"best", "checkpoint-7", "latest"}));
  run.save(8, {.keep = 0});  // what `latest` means stays in any case
  EXPECT_EQ(run.names(), (Names{"best", "checkpoint-7", "checkpoint-8", "latest"}));
}

TEST(Checkpoint, OfAStepThatIsSavedAgainTakesThePlaceOfTheOld) {
  const SavedRun run;
  for (const std::uint64_t step : {2, 4, 6}) run.save(step);
  const fs::path at = run.of(4);
  save_checkpoint(run.path(), 4, one("weight", 40.0), one("exp_avg.weight", 41.0), "again", {.keep = 1});
  auto model = one("weight", 0.0), optimizer = one("exp_avg.weight", 0.0);
  EXPECT_EQ(load_checkpoint(at, model, optimizer), "again");
  EXPECT_EQ(model[0].parameter.data()[0], 40.0);
  EXPECT_EQ(latest_checkpoint(run.path()), at);
  EXPECT_EQ(run.names(), (Names{"checkpoint-4", "checkpoint-6", "latest"})) << "later ones stay until they are passed";
}

TEST(Checkpoint, WhatAKilledSaveLeftIsNotReadAndGoesWithTheNext) {
  const SavedRun run;
  run.save(3);
  fs::create_directory(run.folder / "checkpoint-4.writing.123");
  write_bytes(run.folder / "checkpoint-4.writing.123/model.safetensors", "half of it");
  write_bytes(run.folder / "latest.writing.123", "check");
  write_bytes(run.folder / "notes.txt", "mine");
  EXPECT_EQ(latest_checkpoint(run.path()), run.of(3));
  EXPECT_FALSE(is_checkpoint(run.folder / "checkpoint-4.writing.123"));
  run.save(4);
  EXPECT_EQ(run.names(), (Names{"checkpoint-3", "checkpoint-4", "latest", "notes.txt"}));
}

TEST(Checkpoint, RemovingARunsCheckpointsLeavesTheRest) {
  const SavedRun run;
  run.save(3, {.best = true});
  write_bytes(run.folder / "notes.txt", "mine");
  EXPECT_TRUE(has_checkpoints(run.path()));
  remove_checkpoints(run.path());
  EXPECT_FALSE(has_checkpoints(run.path()));
  EXPECT_EQ(run.names(), (Names{"notes.txt"}));
}

TEST(Checkpoint, WhatOnlyLooksLikeOneIsLeftAlone) {
  const SavedRun run;
  run.save(1);
  fs::copy(run.of(1), run.path() / "checkpoint-007");
  write_bytes(run.path() / "checkpoint-8", "a file");
  write_bytes(run.path() / "my.writing.txt", "a text");
  run.save(2, {.keep = 1});
  EXPECT_EQ(run.names(), (Names{"checkpoint-007", "checkpoint-2", "checkpoint-8", "latest", "my.writing.txt"}));
  EXPECT_FALSE(is_checkpoint(run.path() / "checkpoint-007"));
}

TEST(Checkpoint, AdviceDoesNotDependOnASlash) {
  const SavedRun run;
  run.save(1);
  run.save(2);
  fs::remove(run.of(2) / "state.json");
  expect_message<FormatError>([&] { checkpoint_state(run.of(2).string() + "/"); },
                              {"state.json", "checkpoint-1 is whole"});
}

TEST(Checkpoint, ItsNameIsTold) {
  for (const char* path : {"checkpoint-0", "a/checkpoint-12", "/a/b/checkpoint-3/"}) EXPECT_TRUE(is_checkpoint(path));
  for (const char* path : {"checkpoint-", "checkpoint-1x", "checkpoint--1", "run", "", "checkpoint-5/run"})
    EXPECT_FALSE(is_checkpoint(path)) << path;
}

// ---- what fails while it is written (case O32)

TEST(Behaviour, O32_ACheckpointOnADiskThatIsFullAfterAnyByte) {
  const SavedRun run;
  run.save(1, {.best = true});
  std::uintmax_t largest = 0;
  for (const auto& entry : fs::directory_iterator(run.of(1))) largest = std::max(largest, entry.file_size());
  const Names before = run.names();
  for (std::uintmax_t bytes = 0; bytes < largest; ++bytes) {
    std::string message;
    {
      const FileSizeLimit limit(bytes);
      message = message_of<Error>([&] { run.save(bytes % 2 == 0 ? 1 : 2, {.keep = 1, .best = true}); });
    }
    ASSERT_NE(message.find("cannot be written: File too large"), std::string::npos) << message;
    ASSERT_EQ(run.names(), before) << "after " << bytes << " bytes";
    ASSERT_TRUE(run.holds(latest_checkpoint(run.path()), 1)) << "after " << bytes << " bytes";
  }
  const FileSizeLimit enough(largest);
  run.save(2);
  EXPECT_TRUE(run.holds(latest_checkpoint(run.path()), 2));
}

TEST(Behaviour, O32_AProcessThatDiesInACheckpointAfterAnyByte) {
  const SavedRun run;
  run.save(1);
  std::uintmax_t largest = 0;
  for (const auto& entry : fs::directory_iterator(run.of(1))) largest = std::max(largest, entry.file_size());
  for (std::uintmax_t bytes = 0; bytes < largest; bytes += 11) {
    ASSERT_TRUE(dies_after(bytes, [&] { run.save(bytes % 2 == 0 ? 1 : 2); })) << "after " << bytes << " bytes";
    ASSERT_TRUE(run.holds(latest_checkpoint(run.path()), 1)) << "after " << bytes << " bytes";
    ASSERT_FALSE(fs::exists(run.of(2))) << "after " << bytes << " bytes";
  }
  EXPECT_GT(run.names().size(), 2U) << "the dead leave something behind";
  run.save(2);
  EXPECT_EQ(run.names(), (Names{"checkpoint-1", "checkpoint-2", "latest"}));
}

TEST(Behaviour, O32_ACheckpointWhereItMayNotBeWritten) {
  const SavedRun run;
  run.save(1);
  const Names before = run.names();
  fs::permissions(run.path(), static_cast<fs::perms>(0555));
  {
    const WithoutPrivileges guard;
    expect_message<Error>([&] { run.save(2); }, {"checkpoint-2 cannot be written: Permission denied"});
  }
  fs::permissions(run.path(), fs::perms::owner_all);
  EXPECT_EQ(run.names(), before);
  EXPECT_TRUE(run.holds(latest_checkpoint(run.path()), 1));

  const auto list = one("weight", 1.0);
  write_bytes(run.folder / "file", "x");
  expect_message<Error>([&] { save_checkpoint(run.folder / "file", 1, list, list, ""); }, {"file/checkpoint-1 cannot"});
  expect_message<Error>([&] { save_checkpoint(run.folder / "none", 1, list, list, ""); }, {"none/checkpoint-1 cannot"});
}

// ---- what is damaged

/// Expects that the checkpoint of step 2 does not load for the given reason, that the sentence names another one, and
/// that nothing is loaded by half.
void expect_refused(const SavedRun& run, std::initializer_list<const char*> reasons) {
  auto model = one("weight", 0.5), optimizer = one("exp_avg.weight", 0.5);
  const auto refused = [&](auto&& read) {
    const std::string message = message_of<FormatError>(read);
    for (const char* reason : reasons) EXPECT_NE(message.find(reason), std::string::npos) << message;
    EXPECT_NE(message.find(run.of(2).string() + " cannot be used"), std::string::npos) << message;
    EXPECT_NE(message.find(run.of(1).string() + " is whole: resume from that"), std::string::npos) << message;
  };
  refused([&] { load_checkpoint(run.of(2), model, optimizer); });
  refused([&] { latest_checkpoint(run.path()); });  // not taken silently, either
  refused([&] { checkpoint_state(run.of(2)); });
  EXPECT_EQ(model[0].parameter.data()[0], 0.5);
  EXPECT_EQ(optimizer[0].parameter.data()[0], 0.5);
}

constexpr std::array files = {"model.safetensors", "optimizer.safetensors", "state.json"};

TEST(Checkpoint, WithAFileThatIsMissingIsRefused) {
  for (const char* file : files) {
    const SavedRun run;
    run.save(1), run.save(2);
    fs::remove(run.of(2) / file);
    expect_refused(run, {file, "is missing"});
  }
}

TEST(Checkpoint, WithAFileThatIsCutIsRefused) {
  for (const char* file : files) {
    const SavedRun run;
    run.save(1), run.save(2);
    const std::string whole = read_bytes(run.of(2) / file);
    for (std::size_t bytes = 0; bytes < whole.size(); bytes += 1 + whole.size() / 20) {
      write_bytes(run.of(2) / file, whole.substr(0, bytes));
      expect_refused(run, {file});
    }
  }
}

TEST(Checkpoint, WithAFileOfAnotherStepOrRunIsRefused) {
  const SavedRun other;
  save_checkpoint(other.path(), 2, one("weight", 2.0), one("exp_avg.weight", 2.0), "another state");
  for (const char* file : files) {
    const SavedRun run;
    run.save(1), run.save(2);
    fs::copy_file(run.of(1) / file, run.of(2) / file, fs::copy_options::overwrite_existing);
    expect_refused(run, {file == files[2] ? "was not saved with this state.json" : "of step 1"});
    fs::copy_file(other.of(2) / file, run.of(2) / file, fs::copy_options::overwrite_existing);
    expect_refused(run, {"was not saved with this state.json"});
  }
}

TEST(Checkpoint, WhoseStateWasChangedIsRefused) {
  const SavedRun run;
  run.save(1), run.save(2);
  write_bytes(run.of(2) / "state.json", "{\"step\": 3}\n");
  expect_refused(run, {"was not saved with this state.json"});
}

TEST(Checkpoint, ThatIsAnotherFileIsRefused) {
  const SavedRun run;
  run.save(1), run.save(2);
  save_safetensors(run.of(2) / "model.safetensors", one("weight", 3.0));
  expect_refused(run, {"model.safetensors is not a checkpoint's"});
  fs::remove_all(run.of(2));
  expect_refused(run, {"there is no such folder"});
}

TEST(Checkpoint, OfAnotherModelChangesNothing) {
  const SavedRun run;
  run.save(2);
  const auto refused = [&](const ParameterList<double>& model, const ParameterList<double>& optimizer,
                           std::initializer_list<const char*> parts) {
    expect_message<FormatError>([&] { load_checkpoint(run.of(2), model, optimizer); }, parts);
    for (const auto* list : {&model, &optimizer}) EXPECT_EQ((*list)[0].parameter.data()[0], 0.5);
  };
  refused(one("weight", 0.5), one("exp_avg.weight", 0.5, {6}), {"exp_avg.weight must be (6,), got (2, 3)"});
  refused(one("weight", 0.5, {3, 2}), one("exp_avg.weight", 0.5), {"weight must be (3, 2), got (2, 3)"});
  refused(one("bias", 0.5), one("exp_avg.weight", 0.5), {"missing: bias; not in the model: weight"});
  refused(one("weight", 0.5), one("momentum.weight", 0.5), {"missing: momentum.weight", "begin anew"});
}

TEST(Checkpoint, ThatLatestDoesNotNameIsNotGuessed) {
  const SavedRun run;
  expect_message<Error>([&] { latest_checkpoint(run.path()); }, {run.path().c_str(), "holds no checkpoint"});
  expect_message<Error>([&] { latest_checkpoint(run.folder / "none"); }, {"there is no folder", "none"});
  run.save(1);
  expect_message<Error>([&] { best_checkpoint(run.path()); }, {"best names no checkpoint", "checkpoint-1 is whole"});
  for (const char* text : {"", "checkpoint-", "../checkpoint-1\n", "checkpoint-99\n", "\n", "checkpoint-1.writing.5"}) {
    write_bytes(run.folder / "latest", text);
    expect_message<FormatError>([&] { latest_checkpoint(run.path()); },
                                {run.path().c_str(), "checkpoint-1 is whole: resume from that"});
  }
  fs::remove(run.folder / "latest");
  EXPECT_TRUE(run.holds(latest_checkpoint(run.path()), 1)) << "as the first save leaves it if it is killed at its end";
  run.save(2);
  fs::remove(run.folder / "latest");
  expect_message<FormatError>([&] { latest_checkpoint(run.path()); },
                              {"latest names no checkpoint", "checkpoint-2 is whole"});
}

}  // namespace
}  // namespace xtape::checkpoint_test
