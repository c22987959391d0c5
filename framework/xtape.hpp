#pragma once
// The whole library.

#include <xtape/framework/base/error.hpp>
#include <xtape/framework/base/layer_name.hpp>
#include <xtape/framework/base/parallel.hpp>
#include <xtape/framework/base/random.hpp>
#include <xtape/framework/nn/initialise.hpp>
#include <xtape/framework/nn/parameter_list.hpp>
#include <xtape/framework/ops/ops.hpp>
#include <xtape/framework/tape/expr.hpp>
#include <xtape/framework/train/gradcheck.hpp>
#include <xtape/framework/train/gradients.hpp>
#include <xtape/framework/train/moving_average.hpp>
#include <xtape/framework/train/optimizer.hpp>
#include <xtape/framework/train/parameter_group.hpp>
#include <xtape/framework/train/safetensors.hpp>
#include <xtape/framework/train/schedule.hpp>
#include <xtape/layers/describe.hpp>
#include <xtape/layers/dropout.hpp>
#include <xtape/layers/embedding.hpp>
#include <xtape/layers/feed_forward.hpp>
#include <xtape/layers/layer_norm.hpp>
#include <xtape/layers/linear.hpp>
#include <xtape/layers/multi_head_attention.hpp>
#include <xtape/layers/positions.hpp>
#include <xtape/layers/transformer_block.hpp>
#include <xtape/layers/transformer_lm.hpp>
