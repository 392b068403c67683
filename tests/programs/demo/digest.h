// A 64-bit digest of bytes, for "are these two runs the same, bit for bit". Not cryptographic.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>

namespace lowtide::demo {

class Digest {
 public:
  void add(const void* data, size_t bytes) {
    const auto* at = static_cast<const unsigned char*>(data);
    for (; bytes >= sizeof(uint64_t); at += sizeof(uint64_t), bytes -= sizeof(uint64_t)) {
      uint64_t word = 0;
      std::memcpy(&word, at, sizeof(word));
      mix(word);
    }
    uint64_t rest = bytes;  // the length of the tail, so that trailing zeros count
    std::memcpy(reinterpret_cast<unsigned char*>(&rest) + 1, at, bytes);
    mix(rest);
  }

  [[nodiscard]] std::string text() const {
    char buffer[17];
    std::snprintf(buffer, sizeof(buffer), "%016llx", static_cast<unsigned long long>(state_));
    return buffer;
  }

 private:
  // Odd multiplier and xor-shift are both invertible: two inputs that differ in one word never
  // meet.
  void mix(uint64_t word) {
    state_ = (state_ ^ word) * 0x9E3779B97F4A7C15u;
    state_ ^= state_ >> 32;
  }

  uint64_t state_ = 0xCBF29CE484222325u;
};

}  // namespace lowtide::demo
