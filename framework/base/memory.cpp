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

/// A free range of just this size; or else the last, which has been used least; or else the largest.
std::vector<Pool::Range>::iterator Pool::range_for(std::size_t bytes) {
  const auto exact = std::find_if(free_.begin(), free_.end(), [&](const Range& r) { return r.size == bytes; });
  if (exact != free_.end()) return exact;
  if (!free_.empty() && free_.back().size > bytes) return free_.end() - 1;
  const auto largest =
      std::max_element(free_.begin(), free_.end(), [](const Range& a, const Range& b) { return a.size < b.size; });
  return largest != free_.end() && largest->size > bytes ? largest : free_.end();
}

void* Pool::allocate(std::size_t bytes) {
  bytes = align_up(std::max<std::size_t>(bytes, 1));
  auto range = range_for(bytes);
  if (range == free_.end()) {
    join_neighbours();
    range = range_for(bytes);
  }
  used_ += bytes;
  peak_ = std::max(peak_, used_);
  if (range == free_.end()) {
    overflow_blocks_.push_back(aligned_bytes(bytes));
    overflow_ += bytes;
    return overflow_blocks_.back().get();
  }
  std::byte* p = range->begin;
  range->begin += bytes;
  range->size -= bytes;
  if (range->size == 0) free_.erase(range);
  return p;
}

void Pool::free(void* p, std::size_t bytes) {
  bytes = align_up(std::max<std::size_t>(bytes, 1));
  used_ -= bytes;
  const Range range{static_cast<std::byte*>(p), bytes};
  free_.insert(std::lower_bound(free_.begin(), free_.end(), range,
                                [](const Range& a, const Range& b) { return a.begin < b.begin; }),
               range);
}

void Pool::join_neighbours() {
  std::size_t last = 0;
  for (std::size_t i = 1; i < free_.size(); ++i)
    if (free_[last].begin + free_[last].size == free_[i].begin)
      free_[last].size += free_[i].size;
    else
      free_[++last] = free_[i];
  if (!free_.empty()) free_.resize(last + 1);
}

void Pool::clear() {
  if (overflow_ > 0) {
    // The first block gets twice of what was in use at once, so that sizes can have places of their own (what is not
    // touched takes no memory); a later overflow shows that this was not enough.
    const std::size_t size = capacity_ == 0 ? 2 * peak_ : capacity_ + overflow_;
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
