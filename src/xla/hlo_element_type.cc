#include "xla/hlo_proto.h"

namespace tersum {
namespace {

struct ElementType {
  std::string_view name;
  int64_t bytes;
};

// By xla.PrimitiveType number.
constexpr ElementType kElementTypes[] = {
    {"invalid", 0}, {"pred", 1},   {"s8", 1},      {"s16", 2}, {"s32", 4},  {"s64", 8},
    {"u8", 1},      {"u16", 2},    {"u32", 4},     {"u64", 8}, {"f16", 2},  {"f32", 4},
    {"f64", 8},     {"tuple", 0},  {"opaque", 0},  {"c64", 8}, {"bf16", 2}, {"token", 0},
    {"c128", 16},   {"f8e5m2", 1}, {"f8e4m3fn", 1}};

constexpr int64_t kElementTypeCount = sizeof(kElementTypes) / sizeof(kElementTypes[0]);

bool is_known(int64_t element_type) {
  return element_type >= 0 && element_type < kElementTypeCount;
}

}  // namespace

std::string_view hlo_element_type_name(int64_t element_type) {
  return is_known(element_type) ? kElementTypes[element_type].name : "other";
}

int64_t hlo_element_bytes(int64_t element_type) {
  return is_known(element_type) ? kElementTypes[element_type].bytes : 0;
}

}  // namespace tersum
