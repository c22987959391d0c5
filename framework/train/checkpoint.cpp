#include <xtape/framework/train/checkpoint.hpp>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <functional>
#include <iterator>
#include <optional>

#include <xtape/framework/base/hash.hpp>
#include <xtape/framework/train/replacement.hpp>
#include <xtape/framework/train/safetensors.hpp>

namespace xtape {
namespace {

namespace fs = std::filesystem;

constexpr const char *prefix = "checkpoint-", *unfinished = ".writing.", *who = "[checkpoint] ";
constexpr std::string_view latest = "latest", best_so_far = "best";
constexpr const char *model_file = "model.safetensors", *optimizer_file = "optimizer.safetensors",
                     *state_file = "state.json";

std::string name_of(std::uint64_t step) { return fmt::format("{}{}", prefix, step); }

/// The step in a checkpoint's name; nothing if the name is another's.
std::optional<std::uint64_t> step_of(const std::string& name) {
  const std::string digits = name.starts_with(prefix) ? name.substr(std::strlen(prefix)) : "";
  std::uint64_t step = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), step);
  if (digits.empty() || error != std::errc() || end != digits.data() + digits.size()) return {};
  if (name_of(step) != name) return {};  // "checkpoint-007"
  return step;
}

/// What is in a folder; nothing if it cannot be read.
std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error))
    names.push_back(at->path().filename().string());
  return names;
}

/// Steps of a run's checkpoints, the newest first.
std::vector<std::uint64_t> steps_in(const fs::path& run) {
  std::vector<std::uint64_t> steps;
  for (const std::string& name : names_in(run))
    if (const auto step = step_of(name); step && fs::is_directory(run / name)) steps.push_back(*step);
  std::sort(steps.begin(), steps.end(), std::greater());
  return steps;
}

[[noreturn]] void cannot(const char* what, const fs::path& path) {
  throw Error(fmt::format("{}{} cannot be {}: {}", who, path.string(), what, std::strerror(errno)));
}

/// Makes the names in a folder durable.
void flush_folder(const fs::path& folder) {
  const int directory = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (directory < 0) cannot("written", folder);
  const bool flushed = ::fsync(directory) == 0 || errno == EINVAL;  // some file systems have nothing to flush
  ::close(directory);
  if (!flushed) cannot("written", folder);
}

std::optional<std::string> read_text(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text(std::istreambuf_iterator<char>(file), {});
  if (!file.is_open() || file.bad() || fs::is_directory(path)) return {};
  return text;
}

/// A name that no reader knows, which the next save removes.
fs::path unfinished_name(const fs::path& path) { return path.string() + unfinished + std::to_string(::getpid()); }

/// A folder that gets another name, or is removed with what is in it.
class NewFolder {
 public:
  explicit NewFolder(const fs::path& path) : path_(path), temporary_(unfinished_name(path)) {
    if (::mkdir(temporary_.c_str(), 0777) != 0) cannot("written", path);
  }
  NewFolder(const NewFolder&) = delete;
  NewFolder& operator=(const NewFolder&) = delete;
  ~NewFolder() {
    std::error_code ignored;
    fs::remove_all(temporary_, ignored);
  }
  const fs::path& temporary() const { return temporary_; }

  /// Gives it the name for which it was made. What has that name now changes places with it in one step, so that the
  /// name never means nothing; the destructor removes the old.
  void finish() {
    flush_folder(temporary_);
    const bool exists = fs::exists(fs::symlink_status(path_));
    const int done = exists ? ::renameat2(AT_FDCWD, temporary_.c_str(), AT_FDCWD, path_.c_str(), RENAME_EXCHANGE)
                            : ::rename(temporary_.c_str(), path_.c_str());
    if (done != 0 && exists && (errno == EINVAL || errno == ENOSYS || errno == EOPNOTSUPP))
      throw Error(fmt::format("{}{} cannot be replaced in one step on this file system; move it away first", who,
                              path_.string()));
    if (done != 0) cannot("written", path_);
    flush_folder(path_.parent_path());
  }

 private:
  fs::path path_, temporary_;
};

/// Removes a checkpoint so that no part of it is ever seen under its name.
void remove_whole(const fs::path& checkpoint) {
  std::error_code ignored;  // what cannot be removed stays
  fs::rename(checkpoint, unfinished_name(checkpoint), ignored);
  fs::remove_all(unfinished_name(checkpoint), ignored);
}

void remove_unfinished(const fs::path& run) {
  std::error_code ignored;
  for (const std::string& name : names_in(run)) {
    const std::size_t at = name.find(unfinished);
    const bool ours = at != std::string::npos &&
                      name.find_first_not_of("0123456789", at + std::strlen(unfinished)) == std::string::npos;
    if (ours) fs::remove_all(run / name, ignored);
  }
}

/// Ties the three files together: a hash of the state, which stands in the other two. Numbers of another run
/// or step, or a state that was changed, do not get in.
Metadata seal(std::uint64_t step, const std::string& state) {
  return {{"step", std::to_string(step)}, {"state", fmt::format("{:016x}", fnv1a(state))}};
}

/// The state of a checkpoint if its files are whole and belong together; throws Error with the reason otherwise.
std::string verified_state(const fs::path& checkpoint) {
  require(fs::is_directory(checkpoint), "there is no such folder");
  for (const char* name : {model_file, optimizer_file, state_file})
    require(fs::exists(checkpoint / name), "{} is missing", name);
  const auto state = read_text(checkpoint / state_file);
  require(state.has_value(), "{} cannot be read", state_file);
  const auto step_in = [&](const char* name) {
    const Metadata metadata = SafetensorsFile(checkpoint / name).metadata();
    require(metadata.contains("step") && metadata.contains("state"), "{} is not a checkpoint's", name);
    return metadata.at("step");
  };
  const std::string step = step_in(model_file), optimizer_step = step_in(optimizer_file);
  require(step == optimizer_step, "{} is of step {}, but {} of step {}", model_file, step, optimizer_file,
          optimizer_step);
  for (const char* name : {model_file, optimizer_file})
    require(SafetensorsFile(checkpoint / name).metadata().at("state") == seal(0, *state).at("state"),
            "{} was not saved with this {}", name, state_file);
  return *state;
}

/// "; checkpoint-200 beside it is whole": what else a run could go on from.
std::string advice(const fs::path& run, const std::string& damaged) {
  for (const std::uint64_t step : steps_in(run)) {
    if (name_of(step) == damaged) continue;
    try {
      verified_state(run / name_of(step));
      return fmt::format("{} is whole: resume from that", (run / name_of(step)).string());
    } catch (const std::exception&) {  // nor is this one
    }
  }
  return "no other checkpoint there is whole: begin anew";
}

/// Calls read(); an error in a checkpoint is told with what to do about it.
std::string with_advice(const fs::path& given, const std::function<std::string()>& read) {
  const fs::path checkpoint = given.has_filename() ? given : given.parent_path();  // without a slash at the end
  const fs::path run = checkpoint.has_parent_path() ? checkpoint.parent_path() : ".";
  std::string reason;
  try {
    return read();
  } catch (const std::exception& error) {
    reason = error.what();
  }
  throw FormatError(fmt::format("{}{} cannot be used: {}; {}", who, checkpoint.string(), reason,
                                advice(run, checkpoint.filename().string())));
}

fs::path pointed_to(const fs::path& run, std::string_view pointer) {
  require(fs::is_directory(run), "{}there is no folder {}", who, run.string());
  require(has_checkpoints(run), "{}{} holds no checkpoint", who, run.string());
  const auto name = read_text(run / pointer);
  std::string trimmed = name ? name->substr(0, name->find('\n')) : "";
  // A process that was killed between the two last acts of its first save left a whole checkpoint and no `latest`.
  const auto steps = steps_in(run);
  if (!fs::exists(run / latest) && steps.size() == 1 && pointer == latest) trimmed = name_of(steps[0]);
  if (!step_of(trimmed))
    throw FormatError(fmt::format("{}{} names no checkpoint; {}", who, (run / pointer).string(), advice(run, "")));
  with_advice(run / trimmed, [&] { return verified_state(run / trimmed); });
  return run / trimmed;
}

/// Parameters of the same names and shapes, with values of their own.
template <class T>
ParameterList<T> blank(const ParameterList<T>& list) {
  ParameterList<T> copy;
  for (const auto& [name, parameter] : list) copy.emplace_back(name, Parameter<T>(parameter.shape()));
  return copy;
}

template <class T>
void copy_values(const ParameterList<T>& from, const ParameterList<T>& to) {
  for (std::size_t i = 0; i < to.size(); ++i)
    std::copy_n(from[i].parameter.data(), from[i].parameter.size(), to[i].parameter.share().write_data());
}

}  // namespace

template <class T>
void save_checkpoint(const fs::path& run, std::uint64_t step, const ParameterList<T>& model,
                     const ParameterList<T>& optimizer, const std::string& state, const CheckpointOptions& options) {
  remove_unfinished(run);
  const std::string name = name_of(step);
  {
    NewFolder folder(run / name);
    save_safetensors(folder.temporary() / model_file, model, seal(step, state));
    save_safetensors(folder.temporary() / optimizer_file, optimizer, seal(step, state));
    replace_file(folder.temporary() / state_file, state, who);
    folder.finish();
  }
  if (options.best) replace_file(run / best_so_far, name + "\n", who);
  replace_file(run / latest, name + "\n", who);

  const std::string best = read_text(run / best_so_far).value_or("");
  std::size_t newer = 0;
  for (const std::uint64_t other : steps_in(run)) {
    if (other > step || newer++ < std::max<std::size_t>(1, options.keep)) continue;
    if (best != name_of(other) + "\n") remove_whole(run / name_of(other));
  }
}

template <class T>
std::string load_checkpoint(const fs::path& checkpoint, const ParameterList<T>& model,
                            const ParameterList<T>& optimizer) {
  const auto new_model = blank(model), new_optimizer = blank(optimizer);
  const std::string state = with_advice(checkpoint, [&] {
    std::string text = verified_state(checkpoint);
    load_safetensors(checkpoint / model_file, new_model);
    load_safetensors(checkpoint / optimizer_file, new_optimizer);
    return text;
  });
  copy_values(new_model, model);
  copy_values(new_optimizer, optimizer);
  return state;
}

std::string checkpoint_state(const fs::path& checkpoint) {
  return with_advice(checkpoint, [&] { return verified_state(checkpoint); });
}

fs::path latest_checkpoint(const fs::path& run) { return pointed_to(run, latest); }
fs::path best_checkpoint(const fs::path& run) { return pointed_to(run, best_so_far); }

bool is_checkpoint(const fs::path& path) {
  return step_of((path.has_filename() ? path : path.parent_path()).filename().string()).has_value();
}

bool has_checkpoints(const fs::path& run) { return fs::exists(run / latest) || !steps_in(run).empty(); }

void remove_checkpoints(const fs::path& run) {
  std::error_code ignored;
  fs::remove(run / latest, ignored);
  fs::remove(run / best_so_far, ignored);
  for (const std::uint64_t step : steps_in(run)) remove_whole(run / name_of(step));
  remove_unfinished(run);
}

template void save_checkpoint(const fs::path&, std::uint64_t, const ParameterList<float>&, const ParameterList<float>&,
                              const std::string&, const CheckpointOptions&);
template void save_checkpoint(const fs::path&, std::uint64_t, const ParameterList<double>&,
                              const ParameterList<double>&, const std::string&, const CheckpointOptions&);
template std::string load_checkpoint(const fs::path&, const ParameterList<float>&, const ParameterList<float>&);
template std::string load_checkpoint(const fs::path&, const ParameterList<double>&, const ParameterList<double>&);

}  // namespace xtape
