#include "codec/rows_codec.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "codec/codec_table.h"
#include "codec/combine_checks.h"
#include "codec/shared_sums.h"
#include "codec/sparse_codec.h"

namespace tersum {
namespace {

class RowsCodec final : public Codec {
 public:
  // `row` is borrowed. `scales`: that ranks share, of a row. `gathered`: of sums, where it is known
  // here.
  RowsCodec(const PlainSpec& spec, const Codec& row, size_t scales = 0,
            const Codec* gathered = nullptr)
      : plain_(spec),
        spec_(describe_spec(spec)),
        row_(&row),
        row_values_(spec.rows),
        row_bytes_(row.wire_bytes(spec.rows)),
        row_scales_(scales),
        gathered_(gathered) {
    TERSUM_CHECK(spec.rows > 0 && spec.rows <= kRowMax);
  }
  RowsCodec(const PlainSpec& spec, std::unique_ptr<const Codec> row,
            std::unique_ptr<const SharedSums> sums)
      : RowsCodec(spec, *row) {
    owned_row_ = std::move(row);
    sums_ = std::move(sums);
  }

  [[nodiscard]] const CodecSpec& spec() const override { return spec_; }
  [[nodiscard]] DataType value_type() const override { return row_->value_type(); }
  [[nodiscard]] uint32_t block() const override { return plain_.rows; }
  [[nodiscard]] bool lossless() const override { return false; }
  [[nodiscard]] size_t wire_bytes(size_t count) const override {
    return count / row_values_ * row_bytes_ + row_->wire_bytes(count % row_values_);
  }
  [[nodiscard]] bool takes_hops() const override { return row_->takes_hops(); }
  [[nodiscard]] bool flattens() const override { return row_->flattens(); }
  [[nodiscard]] bool is_random() const override { return row_->is_random(); }
  [[nodiscard]] bool quantizes_own() const override { return row_->quantizes_own(); }
  [[nodiscard]] const SharedSums* shared_sums() const override { return sums_.get(); }
  [[nodiscard]] const Codec& gathered(uint32_t ranks) const override {
    if (gathered_ != nullptr) return *gathered_;
    if (plain_.sparse == 0) return *this;
    return intern_codec(gathered_spec(plain_, ranks), value_type());
  }

  void encode(const void* values, size_t count, std::byte* wire,
              const SlicePlace& place) const override {
    const auto* const from = static_cast<const std::byte*>(values);
    for (size_t first = 0; first < count; first += row_values_, wire += row_bytes_) {
      row_->encode(from + value_offset(first), values_in(first, count), wire,
                   place_of(first, place));
    }
  }
  void decode(const std::byte* wire, size_t count, void* values,
              const SlicePlace& place) const override {
    decode_part(wire, {count, 0, count}, values, place);
  }
  void decode_part(const std::byte* wire, const SliceCut& cut, void* values,
                   const SlicePlace& place) const override;
  void mark_outliers(const std::byte* wire, size_t count, size_t first,
                     OutlierPlaces& places) const override {
    for (size_t at = 0; at < count; at += row_values_, wire += row_bytes_) {
      row_->mark_outliers(wire, values_in(at, count), first + at, places);
    }
  }
  [[nodiscard]] Status check_wire(const std::byte* wire, size_t count) const override;
  void combine(std::span<const std::byte* const> wires, const void* own, size_t own_index,
               size_t count, const CombineFinish& finish, std::byte* wire_out, void* values_out,
               const SlicePlace& place) const override;
  [[nodiscard]] double block_error_bound(double absmax) const override {
    return row_->block_error_bound(absmax);
  }

 private:
  [[nodiscard]] size_t values_in(size_t first, size_t count) const {
    return std::min(row_values_, count - first);
  }
  [[nodiscard]] size_t value_offset(size_t first) const {
    return first * element_bytes(value_type());
  }
  [[nodiscard]] SlicePlace place_of(size_t first, const SlicePlace& slice) const {
    SlicePlace place = slice;
    place.first += first;
    if (place.scales != nullptr) place.scales += first / row_values_ * row_scales_;
    return place;
  }

  PlainSpec plain_;
  CodecSpec spec_;
  std::unique_ptr<const Codec> owned_row_;
  std::unique_ptr<const SharedSums> sums_;
  const Codec* row_;
  size_t row_values_;
  size_t row_bytes_;
  size_t row_scales_;
  const Codec* gathered_;
};

void RowsCodec::decode_part(const std::byte* wire, const SliceCut& cut, void* values,
                            const SlicePlace& place) const {
  cut.check(row_values_);
  auto* const to = static_cast<std::byte*>(values);
  wire += cut.begin / row_values_ * row_bytes_;
  const size_t end = cut.begin + cut.part;
  for (size_t first = cut.begin; first < end; first += row_values_, wire += row_bytes_) {
    row_->decode(wire, values_in(first, cut.count), to + value_offset(first - cut.begin),
                 place_of(first, place));
  }
}

Status RowsCodec::check_wire(const std::byte* wire, size_t count) const {
  for (size_t first = 0; first < count; first += row_values_, wire += row_bytes_) {
    const Status row = row_->check_wire(wire, values_in(first, count));
    if (row.ok()) continue;
    return invalid_argument("row " + std::to_string(first / row_values_) + ": " +
                            std::string(row.message()));
  }
  return {};
}

void RowsCodec::combine(std::span<const std::byte* const> wires, const void* own, size_t own_index,
                        size_t count, const CombineFinish& finish, std::byte* wire_out,
                        void* values_out, const SlicePlace& place) const {
  static_cast<void>(
      checked_combine_args(wires, own, own_index, count, finish, wire_out, values_out));
  thread_local std::vector<const std::byte*> row_wires;
  row_wires.assign(wires.begin(), wires.end());
  const auto* own_row = static_cast<const std::byte*>(own);
  auto* values_row = static_cast<std::byte*>(values_out);
  const size_t row_bytes_out = row_->gathered(finish.gathered_ranks).wire_bytes(row_values_);
  for (size_t first = 0; first < count; first += row_values_) {
    row_->combine(row_wires, own_row, own_index, values_in(first, count), finish, wire_out,
                  values_row, place_of(first, place));
    for (const std::byte*& wire : row_wires) wire += row_bytes_;
    if (own_row != nullptr) own_row += value_offset(row_values_);
    if (wire_out != nullptr) wire_out += row_bytes_out;
    if (values_row != nullptr) values_row += value_offset(row_values_);
  }
}

// Sums of rows are those of the format row by row, under scales of their own.
class RowsSums final : public SharedSums {
 public:
  RowsSums(const PlainSpec& spec, const SharedSums& row) : spec_(spec), row_(row) {
    TERSUM_CHECK(row.scale_block() > 0);
  }

  [[nodiscard]] std::string refusal(uint32_t ranks) const override { return row_.refusal(ranks); }
  [[nodiscard]] bool takes_partials() const override { return row_.takes_partials(); }
  [[nodiscard]] bool takes_pairs() const override { return row_.takes_pairs(); }
  [[nodiscard]] bool takes_replicas() const override { return row_.takes_replicas(); }
  [[nodiscard]] bool is_random() const override { return row_.is_random(); }
  [[nodiscard]] uint32_t scale_block() const override { return row_.scale_block(); }
  [[nodiscard]] uint32_t scale_row() const override { return spec_.rows; }
  void measure(const void* values, size_t count, uint32_t ranks, const SlicePlace& place,
               uint16_t* scales) const override;
  [[nodiscard]] const Codec& contributions(uint32_t ranks) const override {
    return *codecs(ranks).contributions;
  }
  [[nodiscard]] const Codec& partials(uint32_t ranks) const override {
    const Codecs& made = codecs(ranks);
    return made.partials == nullptr ? *made.contributions : *made.partials;
  }

 private:
  struct Codecs {
    std::unique_ptr<const Codec> partials;  // null: those of contributions
    std::unique_ptr<const Codec> contributions;
  };

  [[nodiscard]] const Codecs& codecs(uint32_t ranks) const;

  PlainSpec spec_;
  const SharedSums& row_;
  mutable std::mutex mutex_;
  mutable std::map<uint32_t, Codecs> codecs_;
};

void RowsSums::measure(const void* values, size_t count, uint32_t ranks, const SlicePlace& place,
                       uint16_t* scales) const {
  const auto* const from = static_cast<const std::byte*>(values);
  const size_t value_bytes = element_bytes(contributions(ranks).value_type());
  for (size_t first = 0; first < count; first += spec_.rows) {
    SlicePlace row = place;
    row.first += first;
    row_.measure(from + first * value_bytes, std::min<size_t>(spec_.rows, count - first), ranks,
                 row, scales + shared_scale_at(*this, first));
  }
}

const RowsSums::Codecs& RowsSums::codecs(uint32_t ranks) const {
  const std::lock_guard lock(mutex_);
  const auto [entry, is_new] = codecs_.try_emplace(ranks);
  Codecs& made = entry->second;
  if (!is_new) return made;
  const Codec& contribution = row_.contributions(ranks);
  const Codec& partial = row_.partials(ranks);
  const size_t scales = scales_in_row(*this);
  if (&partial != &contribution) {
    made.partials = std::make_unique<RowsCodec>(spec_, partial, scales);
  }
  made.contributions =
      std::make_unique<RowsCodec>(spec_, contribution, scales, made.partials.get());
  return made;
}

}  // namespace

std::unique_ptr<Codec> make_rows_codec(const PlainSpec& spec, std::unique_ptr<const Codec> row) {
  std::unique_ptr<const SharedSums> sums;
  if (row->shared_sums() != nullptr) {
    sums = std::make_unique<RowsSums>(spec, *row->shared_sums());
  }
  return std::make_unique<RowsCodec>(spec, std::move(row), std::move(sums));
}

}  // namespace tersum
