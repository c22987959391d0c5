#pragma once
// GPT-2's weights in files as Hugging Face publishes them: its names, and weights of linear layers as (in, out).

#include <filesystem>

#include <xtape/framework/train/safetensors.hpp>
#include <xtape/layers/gpt2.hpp>

namespace xtape {

/// The model in a file, or in the file model.safetensors of a folder. Its sizes follow from the shapes there. How many
/// heads it has does not: that is `heads` or, if 0, what the file's metadata or a config.json beside it call n_head.
/// Names may have the prefix "transformer."; masks among them (attn.bias, attn.masked_bias) are passed over; without
/// a lm_head.weight, or with one that equals wte.weight, the two are tied.
///
/// Throws FormatError, which names all arrays that are missing, extra or of another shape at once, or says what in
/// config.json belongs to another model; ShapeError if the width is no multiple of the heads.
template <class T>
Gpt2<T> load_gpt2(const std::filesystem::path& path, std::size_t heads = 0);

/// Writes the model as Hugging Face's GPT2LMHeadModel does: the names that load_gpt2 reads, with the prefix, and a
/// lm_head.weight only if it is not tied. The metadata hold n_head. The file is replaced whole or not at all.
template <class T>
void save_gpt2(const std::filesystem::path& path, Gpt2<T>& model, SaveOptions options = {});

}  // namespace xtape
