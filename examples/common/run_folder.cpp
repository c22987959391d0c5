#include "common/run_folder.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>
#include <xtape/framework/base/parallel.hpp>

#include <cerrno>

#include <xtape/framework/train/checkpoint.hpp>
#include <xtape/framework/train/replacement.hpp>

namespace examples {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

constexpr int state_version = 1;

/// JSON as text, which must be UTF-8.
std::string text_of(const ordered_json& json) {
  try {
    return json.dump(2) + "\n";
  } catch (const nlohmann::json::exception&) {
    throw xtape::Error("the settings hold a text that is not UTF-8, perhaps the name of a file: please rename it");
  }
}

/// Settings without the number of threads, the only one that does not matter.
ordered_json without_threads(ordered_json config) {
  if (config.is_object()) config.erase("threads");
  return config;
}

ordered_json to_json(const RunState& state, const Training& training) {
  return {{"version", state_version},
          {"step", state.step},
          {"schedule", training.schedule},
          {"random", {{"seed", training.seed}, {"step", state.step}}},
          {"data", {{"step", state.step}, {"micro_batch", 0}}},  // a checkpoint stands between two steps
          {"best", state.best ? ordered_json{{"to_beat", *state.best}, {"step", state.best_step}} : ordered_json()},
          {"at_target", state.at_target},
          {"config", without_threads(training.config)}};
}

/// The same entries in whatever order, or the same number.
bool same_entries(const ordered_json& a, const ordered_json& b) {
  if (!a.is_object() || !b.is_object() || a.size() != b.size()) return a == b;
  for (const auto& [key, value] : a.items())
    if (!b.contains(key) || b.at(key) != value) return false;
  return true;
}

/// What a checkpoint's state.json holds, if this version can read it. `use` takes what it needs.
void read_state(const fs::path& checkpoint, const std::string& text, const auto& use) {
  const std::string file = (checkpoint / "state.json").string();
  try {
    const auto state = ordered_json::parse(text);
    xtape::require(state.value("version", 0) == state_version,
                   "{} must be of version {}, got {}; resume with the program that wrote it", file, state_version,
                   state.value("version", 0));
    use(state);
  } catch (const nlohmann::json::exception& error) {
    throw xtape::Error(fmt::format("{} is no state of a run: {}", file, error.what()));
  }
}

}  // namespace

fs::path checkpoint_of(const fs::path& run, bool best) {
  const fs::path path = run.has_filename() ? run : run.parent_path();  // without a slash at the end
  if (xtape::is_checkpoint(path)) return path;
  return best ? xtape::best_checkpoint(path) : xtape::latest_checkpoint(path);
}

ordered_json resumed_config(const fs::path& resume) {
  const fs::path checkpoint = checkpoint_of(resume);
  ordered_json config;
  read_state(checkpoint, xtape::checkpoint_state(checkpoint), [&](const auto& state) { config = state.at("config"); });
  if (config.is_object()) config["threads"] = xtape::threads();
  return config;
}

RunFolder::RunFolder(const RunOptions& options, const Training& training)
    : training_(training), folder_(options.out), keep_(options.keep) {
  if (!kept()) return;
  std::error_code error;
  fs::create_directories(folder_, error);
  xtape::require(!error && fs::is_directory(folder_), "{} cannot be made a folder: {}", folder_.string(),
                 error ? error.message() : "a file has that name");
  lock_.take(folder_);
  const std::string config = text_of(training.config);
  const bool taken = xtape::has_checkpoints(folder_) || fs::exists(folder_ / "model.safetensors");
  xtape::require(!taken || options.overwrite,
                 "{} holds a run already: --resume {} goes on with it, --overwrite begins anew in its place",
                 folder_.string(), folder_.string());
  xtape::remove_checkpoints(folder_);
  fs::remove(folder_ / "model.safetensors", error);
  xtape::replace_file(folder_ / "config.json", config);
  xtape::replace_file(folder_ / "metrics.jsonl", "");
  open_metrics();
}

RunFolder::RunFolder(const RunOptions& options, const Training& training, xtape::AdamW<float>& optimizer,
                     RunState& state)
    : training_(training), keep_(options.keep) {
  const fs::path checkpoint = checkpoint_of(options.resume);
  folder_ = checkpoint.has_parent_path() ? checkpoint.parent_path() : ".";
  lock_.take(folder_);
  const auto check_settings = [&](const ordered_json& json) {
    const auto same = [&](const char* what, const ordered_json& saved, const ordered_json& now) {
      xtape::require(same_entries(saved, now), "{} was saved with another {}: expected {}, got {}", checkpoint.string(),
                     what, saved.dump(), now.dump());
    };
    same("configuration", json.at("config"), without_threads(training.config));
    same("schedule", json.at("schedule"), training.schedule);
    same("seed", json.at("random").at("seed"), training.seed);
    state.step = json.at("step");
    state.at_target = json.at("at_target");
    if (const auto& best = json.at("best"); !best.is_null())
      state.best = best.at("to_beat").get<double>(), state.best_step = best.at("step");
  };
  read_state(checkpoint, xtape::checkpoint_state(checkpoint), check_settings);
  xtape::load_checkpoint(checkpoint, training.model, optimizer.state());
  optimizer.set_steps(state.step);
  cut_metrics(state.step);
  open_metrics();
}

FolderLock::~FolderLock() {
  if (folder_ >= 0) ::close(folder_);
}

void FolderLock::take(const fs::path& folder) {
  folder_ = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  xtape::require(folder_ >= 0, "{} cannot be read", folder.string());
  xtape::require(::flock(folder_, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK,
                 "another process trains in {}: wait for its end, or stop it", folder.string());
}

void RunFolder::cut_metrics(std::uint64_t step) {
  const fs::path path = folder_ / "metrics.jsonl";
  std::ifstream file(path);
  xtape::require(file.good() || !fs::exists(path), "{} cannot be read", path.string());
  std::string kept_lines;
  for (std::string line; std::getline(file, line);) {
    const auto json = ordered_json::parse(line, nullptr, false);  // the last one may be a part of a line
    if (!json.is_object() || !json.contains("step")) continue;
    if (json["step"] > step) break;
    kept_lines += line + "\n";
    if (json.contains("seconds") && json["seconds"].is_number()) seconds_before_ = json["seconds"];
  }
  xtape::require(!file.bad(), "{} cannot be read", path.string());
  xtape::replace_file(path, kept_lines);
}

void RunFolder::open_metrics() {
  metrics_.open(folder_ / "metrics.jsonl", std::ios::app);
  xtape::require(metrics_.good(), "{} cannot be written", (folder_ / "metrics.jsonl").string());
}

void RunFolder::add_metrics(const ordered_json& metrics) {
  if (!kept()) return;
  metrics_ << metrics.dump() << std::endl;
  xtape::require(metrics_.good(), "{} cannot be written: is the disk full?", (folder_ / "metrics.jsonl").string());
}

void RunFolder::save(const RunState& state, xtape::AdamW<float>& optimizer) {
  if (!kept()) return;
  try {
    xtape::save_checkpoint(folder_, state.step, training_.model, optimizer.state(),
                           to_json(state, training_).dump(2) + "\n",
                           {.keep = keep_, .best = state.best && state.best_step == state.step});
  } catch (const xtape::Error& error) {
    if (!fs::exists(folder_ / "latest")) throw;
    throw xtape::Error(
        fmt::format("{}; --resume {} goes on from the checkpoint before", error.what(), folder_.string()));
  }
}

}  // namespace examples
