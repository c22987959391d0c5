#pragma once
// A hash of bytes that is the same on every machine.

#include <cstdint>
#include <string_view>

namespace xtape {

/// FNV-1a, 64 bits (Fowler, Noll, Vo 1991). Against damage and mistakes, not against intent.
constexpr std::uint64_t fnv1a(std::string_view bytes) {
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const char byte : bytes) hash = (hash ^ static_cast<unsigned char>(byte)) * 0x100000001b3;
  return hash;
}
static_assert(fnv1a("") == 0xcbf29ce484222325 && fnv1a("a") == 0xaf63dc4c8601ec8c);

}  // namespace xtape
