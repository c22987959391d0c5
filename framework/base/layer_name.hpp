#pragma once
// Where in a model a computation stands: messages and records name the layer that an op belongs to.

#include <string>

namespace xtape {

/// Dotted path of the named layer whose call is running on this thread; "" outside of all.
const char* current_layer();

/// A layer's place in its model, for instance "blocks.1.self_attn". Layers hold one as their member `name`, which
/// `name_layers(model)` sets, and open their call with
///
///   const auto here = name.enter();
///
/// A layer without a name leaves that of the layer around it.
class LayerName {
 public:
  class Here {
   public:
    explicit Here(const char* path);
    Here(const Here&) = delete;
    Here& operator=(const Here&) = delete;
    ~Here();

   private:
    const char* before_;
  };

  [[nodiscard]] Here enter() const { return Here(path_); }
  void set(const std::string& path);
  /// "" if it has none.
  const char* path() const { return path_; }

 private:
  const char* path_ = "";  // lives as long as the process: records point to it
};

}  // namespace xtape
