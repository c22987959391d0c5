#include <xtape/framework/base/layer_name.hpp>

#include <mutex>
#include <set>

#include <xtape/framework/base/error.hpp>

namespace xtape {
namespace {

thread_local const char* current = "";

/// One copy of each path for the whole process: there are as many as models have layers.
const char* intern(const std::string& path) {
  static std::mutex mutex;
  static std::set<std::string> paths;
  const std::lock_guard lock(mutex);
  return paths.insert(path).first->c_str();
}

}  // namespace

const char* current_layer() { return current; }

LayerName::Here::Here(const char* path) : before_(current) {
  if (*path != '\0') current = path;
}
LayerName::Here::~Here() { current = before_; }

void LayerName::set(const std::string& path) { path_ = path.empty() ? "" : intern(path); }

std::string detail::in_current_layer(std::string sentence) {
  return *current == '\0' ? sentence : fmt::format("{}: {}", current, sentence);
}

}  // namespace xtape
