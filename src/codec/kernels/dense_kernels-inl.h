// The dense formats in vectors.
#if defined(TERSUM_CODEC_KERNELS_DENSE_KERNELS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TERSUM_CODEC_KERNELS_DENSE_KERNELS_INL_H_
#undef TERSUM_CODEC_KERNELS_DENSE_KERNELS_INL_H_
#else
#define TERSUM_CODEC_KERNELS_DENSE_KERNELS_INL_H_
#endif

#include <algorithm>
#include <type_traits>

#include "codec/kernels/dense_format.h"
#include "codec/kernels/dense_reference.h"
#include "codec/kernels/passes.h"
#include "codec/kernels/vector_formats-inl.h"
#include "hwy/highway.h"

#if HWY_TARGET != HWY_SCALAR  // the reference serves there
HWY_BEFORE_NAMESPACE();
namespace tersum {
namespace HWY_NAMESPACE {

// The vector counterparts of dense_elements.h: kBytes per element, tag D of the vectors in which it
// is computed, load and store of one vector.
template <class Format>
struct FloatVectors : Format {
  using D = DF;
};

template <typename T>
struct PlainVectors {
  using D = hn::CappedTag<T, 64 / sizeof(T)>;
  using V = hn::Vec<D>;
  static constexpr size_t kBytes = sizeof(T);
  static HWY_INLINE V load(const std::byte* HWY_RESTRICT from) {
    return hn::LoadU(D(), reinterpret_cast<const T*>(from));
  }
  static HWY_INLINE void store(V value, std::byte* HWY_RESTRICT to) {
    if constexpr (std::is_same_v<T, double>) {
      const auto nan = hn::BitCast(D(), hn::Set(hn::RebindToUnsigned<D>(), 0x7ff8000000000000u));
      value = hn::IfThenElse(hn::IsNaN(value), nan, value);
    }
    hn::StoreU(value, D(), reinterpret_cast<T*>(to));
  }
};

struct SumOp {
  template <class D, class V>
  static HWY_INLINE V apply(D, V a, V b) {
    return hn::Add(a, b);
  }
};

// See larger() and smaller(): NaN wins, zeros are told apart. Native float maxima differ between
// targets in both respects.
template <bool kMax>
struct ExtremeOp {
  template <class D, class V>
  static HWY_INLINE V apply(D, V a, V b) {
    if constexpr (!std::is_floating_point_v<hn::TFromD<D>>) {
      return kMax ? hn::Max(a, b) : hn::Min(a, b);
    } else {
      const auto better = hn::IfThenElse(kMax ? hn::Gt(a, b) : hn::Lt(a, b), a, b);
      const auto same = kMax ? hn::And(a, b) : hn::Or(a, b);
      const auto chosen = hn::IfThenElse(hn::Eq(a, b), same, better);
      return hn::IfThenElse(hn::IsNaN(a), a, hn::IfThenElse(hn::IsNaN(b), b, chosen));
    }
  }
};

inline constexpr size_t kDenseUnroll = 4;
// Accumulator of the passes of a combine of many wires: 8 KiB stay in L1 beside 8 streams.
inline constexpr size_t kDenseTileBytes = 8192;

template <class Value>
inline constexpr size_t kDenseRun = kDenseUnroll * hn::MaxLanes(typename Value::D());

template <class Value, class Format, class Op, bool kFirst, class V>
HWY_INLINE void take_run(const std::byte* from, size_t at, V (&acc)[kDenseUnroll]) {
  const typename Value::D d;
  for (size_t u = 0; u < kDenseUnroll; ++u) {
    const auto value = Format::load(from + (at + u * hn::MaxLanes(d)) * Format::kBytes);
    if constexpr (kFirst) {
      acc[u] = value;
    } else {
      acc[u] = Op::apply(d, acc[u], value);
    }
  }
}

// What follows the combine of one run of values: at most one division.
template <class T>
struct DenseFinish {
  T divisor = 1;
  T factor = 1;
  bool multiplies = false;
  bool divides = false;

  explicit DenseFinish(const Finish& finish) {
    if constexpr (std::is_floating_point_v<T>) {
      divisor = static_cast<T>(finish.divisor);
      factor = T{1} / divisor;
      multiplies = finish.divides() && finish.divides_exactly();
      divides = finish.divides() && !finish.divides_exactly();
    }
  }
  template <class D, class V>
  HWY_INLINE void apply(D d, V (&acc)[kDenseUnroll]) const {
    if constexpr (std::is_floating_point_v<T>) {
      if (multiplies) {
        for (auto& value : acc) value = hn::Mul(value, hn::Set(d, factor));
      } else if (divides) {
        for (auto& value : acc) value = hn::Div(value, hn::Set(d, divisor));
      }
    }
  }
};

template <class Wire, class Value, class Op, bool kPair, class V>
HWY_INLINE void combine_run(const PassInputs& in, size_t at, const std::byte* carry,
                            V (&acc)[kDenseUnroll]) {
  if constexpr (kPair) {  // one wire and own: order does not show
    take_run<Value, Wire, Op, true>(in.wires[0], at, acc);
    take_run<Value, Value, Op, false>(in.own, at, acc);
    prefetch_ahead<kDenseRun<Value> * Value::kBytes / kLineBytes>(in.own + at * Value::kBytes);
    return;
  }
  using Plain = PlainVectors<hn::TFromD<typename Value::D>>;
  size_t w = 0;
  const size_t before = in.own != nullptr ? in.own_index : in.wire_count;
  bool own_pending = in.own != nullptr;
  if (in.carries) {
    take_run<Value, Plain, Op, true>(carry, 0, acc);
  } else if (own_pending && before == 0) {
    take_run<Value, Value, Op, true>(in.own, at, acc);
    own_pending = false;
  } else {
    take_run<Value, Wire, Op, true>(in.wires[w++], at, acc);
  }
  for (; w < before; ++w) take_run<Value, Wire, Op, false>(in.wires[w], at, acc);
  if (own_pending) take_run<Value, Value, Op, false>(in.own, at, acc);
  for (; w < in.wire_count; ++w) take_run<Value, Wire, Op, false>(in.wires[w], at, acc);
}

template <class Format, class V>
HWY_INLINE void store_vectors(const V (&run)[kDenseUnroll], std::byte* HWY_RESTRICT to) {
  constexpr size_t kBytes = hn::MaxLanes(hn::DFromV<V>()) * Format::kBytes;
  if constexpr (std::is_base_of_v<BFloat16Format, Format>) {
    VU rounded[kDenseUnroll];
    round_run<Format>(run, rounded);
    for (size_t u = 0; u < kDenseUnroll; ++u) Format::store_rounded(rounded[u], to + u * kBytes);
  } else {
    for (size_t u = 0; u < kDenseUnroll; ++u) Format::store(run[u], to + u * kBytes);
  }
}

// The results of elements at.. to the wire, if wanted, and to the values, if wanted; these are then
// what the wire decodes to. Nothing is read back: a load right behind its store would wait for it.
template <class Wire, class Value, class V>
HWY_INLINE void store_run(const V (&run)[kDenseUnroll], size_t at, std::byte* wire,
                          std::byte* values) {
  if (wire == nullptr) {
    store_vectors<Value>(run, values + at * Value::kBytes);
  } else if constexpr (std::is_same_v<Wire, Value>) {
    store_vectors<Value>(run, wire + at * Wire::kBytes);
    if (values != nullptr) store_vectors<Value>(run, values + at * Value::kBytes);
  } else {
    constexpr size_t kVector = hn::MaxLanes(typename Value::D());
    VU rounded[kDenseUnroll];
    round_run<Wire>(run, rounded);
    for (size_t u = 0; u < kDenseUnroll; ++u) {
      Wire::store_rounded(rounded[u], wire + (at + u * kVector) * Wire::kBytes);
      if (values == nullptr) continue;
      Value::store_clean(Wire::value_of(rounded[u]), values + (at + u * kVector) * Value::kBytes);
    }
  }
}

// Elements begin..end-1 (whole runs) of one pass; `carry` is the tile's place of element `begin`.
template <class Wire, class Value, class Op, bool kPair>
HWY_INLINE void combine_range(const CombineArgs& args, const PassInputs& in, size_t begin,
                              size_t end, std::byte* tile) {
  using D = typename Value::D;
  using T = hn::TFromD<D>;
  const D d;
  const DenseFinish<T> finish(args.finish);
  auto* const values = static_cast<std::byte*>(args.values_out);
  for (size_t at = begin; at < end; at += kDenseRun<Value>) {
    hn::Vec<D> acc[kDenseUnroll];
    std::byte* const carry = tile + (at - begin) * sizeof(T);
    combine_run<Wire, Value, Op, kPair>(in, at, carry, acc);
    if (in.last) finish.apply(d, acc);
    if (in.last) {
      store_run<Wire, Value>(acc, at, args.wire_out, values);
    } else {
      for (size_t u = 0; u < kDenseUnroll; ++u) {
        hn::StoreU(acc[u], d, reinterpret_cast<T*>(carry) + u * hn::MaxLanes(d));
      }
    }
  }
}

template <class Wire, class Value, class Op>
HWY_NOINLINE void combine_dense(const DenseFormat& format, const CombineArgs& args) {
  using T = hn::TFromD<typename Value::D>;
  HWY_ALIGN std::byte tile[kDenseTileBytes];
  const size_t end = args.count - args.count % kDenseRun<Value>;
  if (args.wire_count == 1 && args.own != nullptr) {
    combine_range<Wire, Value, Op, true>(args, make_pass(args, 0), 0, end, tile);
  } else if (args.wire_count <= kWiresPerPass) {
    combine_range<Wire, Value, Op, false>(args, make_pass(args, 0), 0, end, tile);
  } else {
    constexpr size_t kStep = kDenseTileBytes / sizeof(T);
    for (size_t at = 0; at < end; at += kStep) {
      for (size_t done = 0; done < args.wire_count; done += kWiresPerPass) {
        combine_range<Wire, Value, Op, false>(args, make_pass(args, done), at,
                                              std::min(end, at + kStep), tile);
      }
    }
  }
  if (end < args.count) reference_combine_from(format, args, end);
}

template <class Wire, class Value>
void combine_op(const DenseFormat& format, const CombineArgs& args) {
  switch (args.finish.op) {
    case ReduceOp::kSum:
    case ReduceOp::kAverage:
      return combine_dense<Wire, Value, SumOp>(format, args);
    case ReduceOp::kMax:
      return combine_dense<Wire, Value, ExtremeOp<true>>(format, args);
    case ReduceOp::kMin:
      return combine_dense<Wire, Value, ExtremeOp<false>>(format, args);
  }
}

// `To` from `From`: both directions of a wire that differs from the values.
template <class From, class To>
HWY_INLINE size_t convert_runs(const std::byte* from, size_t count, std::byte* to) {
  const size_t end = count - count % kDenseRun<To>;
  for (size_t i = 0; i < end; i += kDenseRun<To>) {
    VF run[kDenseUnroll];
    for (size_t u = 0; u < kDenseUnroll; ++u) {
      run[u] = From::load(from + (i + u * kLanes) * From::kBytes);
    }
    prefetch_ahead<kDenseRun<To> * From::kBytes / kLineBytes>(from + i * From::kBytes);
    store_vectors<To>(run, to + i * To::kBytes);
  }
  return end;
}

}  // namespace HWY_NAMESPACE
}  // namespace tersum
HWY_AFTER_NAMESPACE();
#endif  // HWY_TARGET

#endif  // TERSUM_CODEC_KERNELS_DENSE_KERNELS_INL_H_
