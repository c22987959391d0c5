#include <xtape/framework/base/memory.hpp>

#include <algorithm>

namespace xtape {

void* Arena::allocate(std::size_t bytes, std::size_t align) {
  while (block_ < blocks_.size() && align_up(offset_, align) + bytes > blocks_[block_].size) ++block_, offset_ = 0;
  if (block_ == blocks_.size()) {
    const std::size_t last = blocks_.empty() ? std::size_t{32} << 10 : blocks_.back().size;
    const std::size_t size = align_up(std::max(bytes, 2 * last));
    blocks_.push_back({aligned_bytes(size), size});
  }
  std::byte* p = blocks_[block_].bytes.get() + align_up(offset_, align);
  offset_ = align_up(offset_, align) + bytes;
  used_ = align_up(used_, align) + bytes;
  peak_ = std::max(peak_, used_);
  return p;
}

void Arena::release(const Mark& mark) {
  block_ = mark.block;
  offset_ = mark.offset;
  used_ = mark.used;
}

void Arena::clear() {
  if (blocks_.size() > 1) {
    blocks_.clear();
    blocks_.push_back({aligned_bytes(align_up(peak_)), align_up(peak_)});
  }
  release({});
}

std::size_t Arena::reserved() const {
  std::size_t n = 0;
  for (const Block& block : blocks_) n += block.size;
  return n;
}

void* Pool::allocate(std::size_t bytes) {
  bytes = align_up(std::max<std::size_t>(bytes, 1));
  auto best = free_.end();
  for (auto range = free_.begin(); range != free_.end(); ++range)
    if (range->size >= bytes && (best == free_.end() || range->size < best->size)) best = range;
  used_ += bytes;
  peak_ = std::max(peak_, used_);
  if (best == free_.end()) {
    overflow_blocks_.push_back(aligned_bytes(bytes));
    overflow_ += bytes;
    return overflow_blocks_.back().get();
  }
  std::byte* p = best->begin;
  best->begin += bytes;
  best->size -= bytes;
  if (best->size == 0) free_.erase(best);
  return p;
}

void Pool::free(void* p, std::size_t bytes) {
  bytes = align_up(std::max<std::size_t>(bytes, 1));
  used_ -= bytes;
  put_back({static_cast<std::byte*>(p), bytes});
}

void Pool::put_back(Range range) {
  auto next = std::lower_bound(free_.begin(), free_.end(), range,
                               [](const Range& a, const Range& b) { return a.begin < b.begin; });
  const bool joins_next = next != free_.end() && range.begin + range.size == next->begin;
  const bool joins_previous = next != free_.begin() && (next - 1)->begin + (next - 1)->size == range.begin;
  if (joins_previous && joins_next) {
    (next - 1)->size += range.size + next->size;
    free_.erase(next);
  } else if (joins_previous) {
    (next - 1)->size += range.size;
  } else if (joins_next) {
    *next = {range.begin, range.size + next->size};
  } else {
    free_.insert(next, range);
  }
}

void Pool::clear() {
  if (overflow_ > 0) {
    // The first block gets an eighth more than was in use at once, for the gaps between allocations of other sizes;
    // a later overflow shows that this was not enough.
    const std::size_t size = capacity_ == 0 ? align_up(peak_ + peak_ / 8) : capacity_ + overflow_;
    free_.clear();
    overflow_blocks_.clear();
    block_.reset();
    capacity_ = overflow_ = used_ = 0;  // holds if there is no memory for the new block
    block_ = aligned_bytes(size);
    capacity_ = size;
  }
  free_.clear();
  if (capacity_ > 0) free_.push_back({block_.get(), capacity_});
  used_ = 0;
}

}  // namespace xtape
