#pragma once
// Memory of a tape: aligned blocks from the heap, an arena for what lives until clear(), a pool for gradients.

#include <cstddef>
#include <memory>
#include <new>
#include <vector>

namespace xtape {

/// Every array of the library starts on a cache line, so that vector loads never straddle one.
inline constexpr std::size_t alignment = 64;
constexpr std::size_t align_up(std::size_t n, std::size_t to = alignment) { return (n + to - 1) / to * to; }

struct AlignedDelete {
  void operator()(std::byte* p) const { ::operator delete(p, std::align_val_t(alignment)); }
};
using AlignedBytes = std::unique_ptr<std::byte[], AlignedDelete>;
/// Uninitialised bytes on a cache line boundary.
inline AlignedBytes aligned_bytes(std::size_t n) {
  return AlignedBytes(static_cast<std::byte*>(::operator new(n, std::align_val_t(alignment))));
}

/// A stack of memory: allocate moves a pointer, clear() rewinds it. It grows by further blocks; clear() merges them
/// into one block that holds the most that was ever in use, so that a round no larger than every one before it does not
/// touch the heap.
class Arena {
 public:
  struct Mark {
    std::size_t block = 0, offset = 0, used = 0;
  };
  void* allocate(std::size_t bytes, std::size_t align = alignment);
  Mark mark() const { return {block_, offset_, used_}; }
  /// Gives back everything allocated since the mark.
  void release(const Mark& mark);
  void clear();
  std::size_t used() const { return used_; }
  std::size_t peak() const { return peak_; }
  std::size_t reserved() const;

 private:
  struct Block {
    AlignedBytes bytes;
    std::size_t size;
  };
  std::vector<Block> blocks_;
  std::size_t block_ = 0, offset_ = 0;  // where the next allocation goes
  std::size_t used_ = 0, peak_ = 0;     // counted as if all lay in one block
};

/// Memory that comes and goes in any order, of one block. A size is given the place where that size was before, so that
/// the parts of an array lie in the caches of the cores that work on them; else a part of a larger free range.
/// Neighbours are joined when nothing fits. Like the arena it grows by further blocks and merges them at clear().
class Pool {
 public:
  void* allocate(std::size_t bytes);
  void free(void* p, std::size_t bytes);
  /// Forgets every allocation.
  void clear();
  std::size_t used() const { return used_; }
  std::size_t peak() const { return peak_; }
  std::size_t reserved() const { return capacity_ + overflow_; }

 private:
  struct Range {
    std::byte* begin;
    std::size_t size;
  };
  std::vector<Range>::iterator range_for(std::size_t bytes);
  void join_neighbours();
  std::vector<Range> free_;  // sorted by address
  AlignedBytes block_;
  std::vector<AlignedBytes> overflow_blocks_;
  std::size_t capacity_ = 0, overflow_ = 0;
  std::size_t used_ = 0, peak_ = 0;
};

}  // namespace xtape
