#include <xtape/xtape.hpp>
#include "gradient_check/entries.hpp"

namespace examples {
namespace {

using namespace xtape;
using Tape64 = Tape<double>;
using Inputs64 = std::span<const Var<double>>;

const std::vector<Shape> sequence = {{2, 4, 6}};                // (batch, time, width)
const std::vector<Shape> with_memory = {{2, 4, 6}, {2, 5, 6}};  // and what is attended to
constexpr auto call = [](auto& layer, Tape64&, Inputs64 x) { return layer(x[0]); };
constexpr auto call_with_memory = [](auto& layer, Tape64&, Inputs64 x) { return layer(x[0], x[1], {.causal = true}); };

Mask lengths(Tape64& tape, std::initializer_list<int> of_rows, std::size_t time) {
  return tape.lengths(xt::xarray<int>(xt::adapt(std::vector<int>(of_rows))), time);
}

template <class Make, class Call>
Entry layer(std::string name, const std::vector<Shape>& shapes, Make make, Call function) {
  return {"layer", std::move(name), {module_check(shapes, make, function)}};
}

void simple_layers(std::vector<Entry>& e) {
  for (const bool bias : {true, false})
    e.push_back(layer(
        bias ? "Linear" : "Linear/no-bias", {{2, 3, 5}},
        [=](Rng& rng) { return Linear<double>(5, 4, rng, {.bias = bias}); }, call));
  const xt::xarray<int> tokens = {{1, 4, 0, 1}, {3, 3, 2, 0}};
  e.push_back(layer(
      "Embedding", {}, [](Rng& rng) { return Embedding<double>(5, 6, rng); },
      [=](auto& table, Tape64& tape, Inputs64) { return table(tape, tokens); }));
  e.push_back(layer(
      "LearnedPositions", sequence, [](Rng& rng) { return LearnedPositions<double>(7, 6, rng); }, call));
  e.push_back(layer(
      "SinusoidalPositions", sequence, [](Rng&) { return SinusoidalPositions<double>(7, 6); }, call));
  e.push_back(layer(
      "LayerNorm", sequence, [](Rng&) { return LayerNorm<double>(6); }, call));
  e.push_back(layer(
      "LayerNorm/no-bias", sequence, [](Rng&) { return LayerNorm<double>(6, {.bias = false}); }, call));
  e.push_back(layer(
      "RmsNorm", sequence, [](Rng&) { return RmsNorm<double>(6); }, call));
  e.push_back(layer(
      "Dropout", sequence, [](Rng&) { return Dropout(0.5); }, call));
  e.push_back(layer(
      "FeedForward", sequence, [](Rng& rng) { return FeedForward<double>(6, 9, rng); }, call));
  e.push_back(layer(
      "FeedForward/relu", sequence,
      [](Rng& rng) { return FeedForward<double>(6, 9, rng, {.activation = Activation::relu}); }, call));
  e.push_back(layer(
      "FeedForward/gelu-tanh", sequence,
      [](Rng& rng) { return FeedForward<double>(6, 9, rng, {.activation = Activation::gelu_tanh}); }, call));
  e.push_back(layer(
      "GatedFeedForward", sequence, [](Rng& rng) { return GatedFeedForward<double>(6, 9, rng, {.bias = true}); },
      call));
}

void attention_layers(std::vector<Entry>& e) {
  using Attention = MultiHeadAttention<double>;
  const auto push = [&](const char* variant, std::vector<Shape> shapes, std::size_t width, std::size_t heads,
                        MultiHeadAttentionOptions options, auto function) {
    e.push_back(layer(
        std::string("MultiHeadAttention/") + variant, shapes,
        [=](Rng& rng) { return Attention(width, heads, rng, options); }, function));
  };
  const auto cross = [](auto& attend, Tape64&, Inputs64 x) { return attend(x[0], x[1], x[2]); };
  push("self", sequence, 6, 2, {}, call);
  push("no-bias", sequence, 6, 2, {.bias = false}, call);
  push("masked", sequence, 6, 2, {}, [](auto& attend, Tape64& tape, Inputs64 x) {
    return attend(x[0], {.causal = true, .allow_keys = lengths(tape, {4, 2}, 4), .window = 3});
  });
  push("score-bias", {{2, 4, 6}, {1, 2, 4, 4}}, 6, 2, {},
       [](auto& attend, Tape64&, Inputs64 x) { return attend(x[0], {.causal = true, .bias = x[1]}); });
  push("cross", {{2, 3, 6}, {2, 5, 6}, {2, 5, 6}}, 6, 2, {}, cross);
  push("widths", {{2, 3, 6}, {2, 5, 5}, {2, 5, 4}}, 6, 2, {.key_width = 5, .value_width = 4}, cross);
  push("grouped", {{2, 4, 8}}, 8, 4, {.kv_heads = 2}, call);
  push("rope", {{2, 4, 8}}, 8, 2, {.rope = RopeOptions{.base = 10}}, call);
  push("dropout", sequence, 6, 2, {.dropout = 0.3}, call);
  push("weights", {{2, 3, 6}, {2, 5, 6}}, 6, 2, {}, [](auto& attend, Tape64&, Inputs64 x) {
    const auto result = attend.with_weights(x[0], x[1], x[1]);
    const auto flat = [](Var<double> y) { return reshape(y, {y.size()}); };
    return concat({flat(result.output), flat(result.weights), flat(result.log_sum_exp)}, 0);
  });
}

/// The entry of a layer for each place where it may normalise; `make(rng, block)` gives the layer.
template <class Make, class Call>
void push_both_norms(std::vector<Entry>& e, const std::string& name, const std::vector<Shape>& shapes, Make make,
                     Call function) {
  for (const Norm norm : {Norm::pre, Norm::post})
    e.push_back(layer(
        name + (norm == Norm::pre ? "/pre-norm" : "/post-norm"), shapes,
        [=](Rng& rng) { return make(rng, TransformerBlockOptions{.norm = norm, .hidden = 10}); }, function));
}

void blocks(std::vector<Entry>& e) {
  push_both_norms(
      e, "TransformerBlock", sequence,
      [](Rng& rng, const auto& block) { return TransformerBlock<double>(6, 2, rng, block); },
      [](auto& block, Tape64&, Inputs64 x) { return block(x[0], {.causal = true}); });
  e.push_back(layer(
      "TransformerBlock/attention-only", sequence,
      [](Rng& rng) { return TransformerBlock<double>(6, 2, rng, {.attention_only = true}); }, call));
  e.push_back(layer(
      "TransformerBlock/no-bias", sequence,
      [](Rng& rng) { return TransformerBlock<double>(6, 2, rng, {.bias = false}); }, call));
  push_both_norms(
      e, "TransformerEncoder", sequence,
      [](Rng& rng, const auto& block) { return TransformerEncoder<double>(6, 2, rng, {.layers = 2, .block = block}); },
      call);
  push_both_norms(
      e, "TransformerDecoderLayer", with_memory,
      [](Rng& rng, const auto& block) { return TransformerDecoderLayer<double>(6, 2, rng, block); }, call_with_memory);
  push_both_norms(
      e, "TransformerDecoder", with_memory,
      [](Rng& rng, const auto& block) { return TransformerDecoder<double>(6, 2, rng, {.layers = 2, .block = block}); },
      call_with_memory);
}

}  // namespace

std::vector<Entry> layer_entries() {
  std::vector<Entry> entries;
  simple_layers(entries);
  attention_layers(entries);
  blocks(entries);
  return entries;
}

std::vector<Entry> model_entries() {
  const xt::xarray<int> tokens = {{1, 4, 0, 1}, {3, 3, 2, 0}}, targets = {{4, 0, 1, 2}, {3, -100, 0, 1}};
  std::vector<Entry> entries;
  const auto language_model = [&](const char* name, bool tied, TransformerBlockOptions block) {
    const TransformerLmOptions options = {
        .vocabulary = 5, .length = 4, .width = 8, .heads = 2, .layers = 2, .block = block, .tie_embeddings = tied};
    entries.push_back(
        {"model",
         name,
         {module_check(
             {}, [=](Rng& rng) { return TransformerLm<double>(options, rng); },
             [=](auto& model, Tape64& tape, Inputs64) { return cross_entropy(model(tape, tokens), targets); })}});
  };
  language_model("TransformerLm", false, {.hidden = 10});
  language_model("TransformerLm/tied", true, {.hidden = 10});
  language_model("TransformerLm/post-norm", false, {.norm = Norm::post, .hidden = 10});
  language_model("TransformerLm/grouped-rope", true, {.hidden = 10, .kv_heads = 1, .rope = RopeOptions{.base = 10}});
  const Gpt2Options gpt2 = {.vocabulary = 5, .length = 4, .width = 8, .heads = 2, .layers = 2, .hidden = 10};
  entries.push_back(
      {"model",
       "Gpt2",
       {module_check(
           {}, [=](Rng& rng) { return Gpt2<double>(gpt2, rng); },
           [=](auto& model, Tape64& tape, Inputs64) { return cross_entropy(model(tape, tokens), targets); })}});
  for (const bool tied : {false, true}) {
    const EncoderDecoderOptions options = {.source_vocabulary = 5,
                                           .target_vocabulary = 5,
                                           .length = 4,
                                           .width = 6,
                                           .heads = 2,
                                           .layers = 1,
                                           .block = {.hidden = 9},
                                           .tie_embeddings = tied};
    entries.push_back({"model",
                       tied ? "EncoderDecoder/tied" : "EncoderDecoder",
                       {module_check(
                           {}, [=](Rng& rng) { return EncoderDecoder<double>(options, rng); },
                           [=](auto& model, Tape64& tape, Inputs64) {
                             const Mask source = lengths(tape, {4, 2}, 4), target = lengths(tape, {4, 3}, 4);
                             return cross_entropy(model(tape, tokens, tokens, source, target), targets);
                           })}});
  }
  return entries;
}

}  // namespace examples
