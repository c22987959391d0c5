#include "op_cases/case.hpp"

namespace xtape::op_cases {
namespace {

/// Attend with masks that live on the tape of x.
template <class T>
Attend<T> attend_of(Tape<T>& tape, std::size_t batch, std::size_t queries, std::size_t keys, bool causal, bool padded) {
  Attend<T> attend{.causal = causal};
  if (!padded) return attend;
  xt::xtensor<int, 1> key_lengths = xt::zeros<int>({batch}), query_lengths = xt::zeros<int>({batch});
  for (std::size_t b = 0; b < batch; ++b) {  // the first row of the batch sees no key at all
    key_lengths(b) = static_cast<int>(b * keys / batch);
    query_lengths(b) = static_cast<int>(queries - b % queries);
  }
  attend.allow_keys = tape.lengths(key_lengths, keys);
  attend.allow_queries = tape.lengths(query_lengths, queries);
  return attend;
}

void attention_of_sizes(std::vector<OpCase>& t) {
  struct Size {
    std::size_t batch, queries, keys, heads, key_width, value_width;
  };
  const std::vector<std::vector<Shape>> refused = {{{2, 3, 6}, {2, 3, 4}, {2, 3, 6}},
                                                   {{2, 3, 6}, {1, 3, 6}, {2, 3, 6}},
                                                   {{3, 6}, {2, 3, 6}, {2, 3, 6}},
                                                   {{2, 3, 6}, {2, 3, 6}, {2, 4, 6}},
                                                   {{2, 3, 0}, {2, 3, 0}, {2, 3, 6}}};
  for (const Size& s : std::initializer_list<Size>{{2, 3, 3, 1, 4, 4},
                                                   {2, 5, 5, 3, 2, 2},
                                                   {1, 1, 1, 2, 3, 3},
                                                   {3, 2, 7, 2, 4, 3},
                                                   {2, 6, 3, 1, 2, 5},
                                                   {0, 3, 3, 2, 2, 2},
                                                   {1, 19, 19, 2, 9, 9}})
    for (const bool causal : {false, true})
      for (const bool padded : {false, true}) {
        if (padded && s.batch == 0) continue;
        const std::string text = fmt::format("{}x{}x{} heads {}{}{}", s.batch, s.queries, s.keys, s.heads,
                                             causal ? " causal" : "", padded ? " padded" : "");
        const auto attend = [=](auto& tape) { return attend_of(tape, s.batch, s.queries, s.keys, causal, padded); };
        const std::vector<Shape> inputs = {{s.batch, s.queries, s.heads * s.key_width},
                                           {s.batch, s.keys, s.heads * s.key_width},
                                           {s.batch, s.keys, s.heads * s.value_width}};
        t.push_back({"attention", text, inputs,
                     both([=](auto x) { return xtape::attention(x[0], x[1], x[2], s.heads, attend(x[0].tape())); }),
                     both([=](auto x) { return reference::attention(x[0], x[1], x[2], s.heads, attend(x[0].tape())); }),
                     Domain::normal, padded ? std::vector<std::vector<Shape>>{} : refused});
        t.push_back({"attention_with_weights", text, inputs, both([=](auto x) {
                       const auto r = attention_with_weights(x[0], x[1], x[2], s.heads, attend(x[0].tape()));
                       return concat({reshape(r.output, {r.output.size()}), reshape(r.weights, {r.weights.size()})}, 0);
                     }),
                     both([=](auto x) {
                       const auto r = reference::attention_with_weights(x[0], x[1], x[2], s.heads, attend(x[0].tape()));
                       return concat({reshape(r.output, {r.output.size()}), reshape(r.weights, {r.weights.size()})}, 0);
                     })});
        if (!padded && s.keys >= s.queries)
          t.push_back(
              {"attention_with_weights", text + " log-sum-exp", inputs, both([=](auto x) {
                 return attention_with_weights(x[0], x[1], x[2], s.heads, attend(x[0].tape())).log_sum_exp;
               }),
               both([=](auto x) {
                 return reference::attention_with_weights(x[0], x[1], x[2], s.heads, attend(x[0].tape())).log_sum_exp;
               })});
        if (s.queries == s.keys && s.key_width == s.value_width)
          t.push_back({"attention_packed",
                       text,
                       {{s.batch, s.queries, 3 * s.heads * s.key_width}},
                       both([=](auto x) { return attention_packed(x[0], s.heads, attend(x[0].tape())); }),
                       both([=](auto x) { return reference::attention_packed(x[0], s.heads, attend(x[0].tape())); }),
                       Domain::normal,
                       {{{2, 3}}, {{2, 3, 3 * s.heads + 1}}}});
      }
}

/// Pairs of which about a third are hidden, always the same for one shape.
template <class T>
Mask some_pairs(Tape<T>& tape, const Shape& shape) {
  Rng rng(17);
  xt::xarray<bool> allowed = xt::zeros<bool>(std::vector<std::size_t>(shape.begin(), shape.end()));
  for (bool& pair : allowed) pair = rng.uniform() > 0.3;
  return tape.mask(allowed);
}

/// Options beyond causality and padding; x[3] is the bias, where there is one.
struct PairMask {
  std::size_t kv_heads;
  Shape allow, bias;  // () for none
  std::optional<std::size_t> window;
  bool causal, padded;
  AttentionKernel kernel = AttentionKernel::automatic;

  template <class T>
  Attend<T> attend(std::span<const Var<T>> x, std::size_t batch, std::size_t queries, std::size_t keys) const {
    Attend<T> attend = attend_of(x[0].tape(), batch, queries, keys, causal, padded);
    if (allow.rank() > 0) attend.allow = some_pairs(x[0].tape(), allow);
    if (bias.rank() > 0) attend.bias = x.back();
    attend.window = window;
    attend.kv_heads = kv_heads;
    attend.kernel = kernel;
    return attend;
  }
};

/// Two batch rows, four heads, times that equal neither.
void attention_of_pairs(std::vector<OpCase>& t, AttentionKernel kernel) {
  constexpr std::size_t batch = 2, heads = 4, width = 3;
  for (const std::size_t keys : {5, 7})
    for (PairMask m : std::initializer_list<PairMask>{{2, {}, {}, {}, false, false},
                                                      {1, {5, keys}, {}, {}, false, true},
                                                      {4, {2, 5, keys}, {5, keys}, {}, false, false},
                                                      {2, {2, 1, 5, keys}, {2, 5, keys}, 3, true, false},
                                                      {2, {1, 4, 1, keys}, {2, 1, 5, keys}, {}, true, true},
                                                      {1, {2, 4, 5, keys}, {2, 4, 5, keys}, 2, false, false},
                                                      {4, {}, {1, 4, 1, keys}, 1, false, true}}) {
      m.kernel = kernel;
      const std::string text =
          fmt::format("{} keys, kv_heads {}, allow {}, bias {}, window {}{}{}{}", keys, m.kv_heads, m.allow, m.bias,
                      m.window ? std::to_string(*m.window) : "none", m.causal ? ", causal" : "",
                      m.padded ? ", padded" : "", kernel == AttentionKernel::tiled ? ", tiled" : "");
      std::vector<Shape> inputs = {{batch, 5, heads * width}, {batch, keys, m.kv_heads * width}};
      inputs.push_back({batch, keys, m.kv_heads * 2});
      if (m.bias.rank() > 0) inputs.push_back(m.bias);
      t.push_back(
          {"attention", text, inputs,
           both([=](auto x) { return xtape::attention(x[0], x[1], x[2], heads, m.attend(x, batch, 5, keys)); }),
           both([=](auto x) { return reference::attention(x[0], x[1], x[2], heads, m.attend(x, batch, 5, keys)); })});
      t.push_back({"attention_with_weights", text, inputs, both([=](auto x) {
                     const auto r = attention_with_weights(x[0], x[1], x[2], heads, m.attend(x, batch, 5, keys));
                     return concat({reshape(r.output, {r.output.size()}), reshape(r.weights, {r.weights.size()})}, 0);
                   }),
                   both([=](auto x) {
                     const auto r =
                         reference::attention_with_weights(x[0], x[1], x[2], heads, m.attend(x, batch, 5, keys));
                     return concat({reshape(r.output, {r.output.size()}), reshape(r.weights, {r.weights.size()})}, 0);
                   })});
      if (keys != 5) continue;
      inputs.erase(inputs.begin(), inputs.begin() + 3);
      inputs.insert(inputs.begin(), {batch, 5, (heads + 2 * m.kv_heads) * width});
      t.push_back(
          {"attention_packed", text, inputs,
           both([=](auto x) { return attention_packed(x[0], heads, m.attend(x, batch, 5, keys)); }),
           both([=](auto x) { return reference::attention_packed(x[0], heads, m.attend(x, batch, 5, keys)); })});
    }
}

void rotary_positions(std::vector<OpCase>& t) {
  struct Size {
    std::size_t batch, time, heads, width;
  };
  for (const Size& s :
       std::initializer_list<Size>{{2, 5, 3, 4}, {1, 1, 1, 2}, {3, 7, 2, 18}, {0, 3, 2, 2}, {2, 0, 1, 4}})
    for (const RopePairing pairing : {RopePairing::halves, RopePairing::interleaved})
      for (const bool of_rows : {false, true}) {
        xt::xarray<int> positions = xt::zeros<int>(std::vector<std::size_t>{s.batch, s.time});
        for (std::size_t i = 0; i < positions.size(); ++i) positions.flat(i) = static_cast<int>(7 * i % 11) - 3;
        const auto options = [=](auto& tape) {
          RopeOptions o{.base = 100, .pairing = pairing, .first_position = of_rows ? 0u : 3u};
          if (of_rows) o.positions = tape.integers(positions);
          return o;
        };
        t.push_back(
            {"rope",
             fmt::format("{}x{} heads {}{}{}", s.batch, s.time, s.heads,
                         pairing == RopePairing::halves ? " halves" : " interleaved", of_rows ? " with positions" : ""),
             {{s.batch, s.time, s.heads * s.width}},
             both([=](auto x) { return rope(x[0], s.heads, options(x[0].tape())); }),
             both([=](auto x) { return reference::rope(x[0], s.heads, options(x[0].tape())); }),
             Domain::normal,
             {{{2, s.heads * s.width}}, {{2, 3, s.heads * 3}}, {{2, 3, s.heads * 4 + 1}}, {{2, 3, 0}}}});
      }
}

}  // namespace

void attention(std::vector<OpCase>& t) {
  rotary_positions(t);
  attention_of_sizes(t);
  attention_of_pairs(t, AttentionKernel::materialised);
  attention_of_pairs(t, AttentionKernel::tiled);
}

}  // namespace xtape::op_cases
