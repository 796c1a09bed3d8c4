// Group ids that all members derive alike, without talking. Pure.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace tersum {

// The id of the group that split number `split` of `parent` makes of those who passed `color`.
uint64_t derive_group_id(uint64_t parent, uint64_t split, int64_t color);

// The id of the group of these devices within a world.
uint64_t device_group_id(uint64_t world, std::span<const int64_t> devices);

// Stands for a text that members must agree on, where the text itself is too long to publish.
uint64_t text_digest(std::string_view text);

// Of two digests.
uint64_t mix_digests(uint64_t a, uint64_t b);

}  // namespace tersum
