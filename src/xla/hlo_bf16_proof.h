// Whether a sum that XLA promoted from bf16 to f32 may travel as bf16 without losing anything.
//
// XLA:CPU cannot add bf16, so it turns `all-reduce(x: bf16)` into
// `convert_bf16(all-reduce(convert_f32(x)))` and sends 4 bytes per element where 2 would do. Fusion
// and the removal of redundant conversions then change the picture: the inner convert may be gone
// (the producer's f32 value goes straight in, and is not a bf16 number), the outer one may sit in a
// fusion, or be gone. So it has to be proved for each instruction.
//
// The claim. Let r(·) round f32 to bf16 (to nearest, ties to even), x_1..x_n be the operands on the
// n devices and S = ((x_1 + x_2) + …) + x_n their f32 sum in the plan's order. If
//   (a) every x_i is a bf16 number held in f32, that is r(x_i) = x_i, and
//   (b) the program reads S only through r,
// then sending r(x_i), summing in f32 and sending back r(S) changes no bit of the program:
//   * r(x_i) = x_i by (a): the owner adds the very values that the f32 wire would have brought, in
//   the
//     same order, and gets the same S;
//   * every device receives r(S) and the program computes r(r(S)) = r(S) by (b) and since r is
//     idempotent: what it would have computed from S.
// It holds for finite values, for infinities (both sides of a sum that overflows bf16 but not f32
// are r(S) = ±inf) and, up to the payload, for NaNs. It needs the accumulation in f32 and *one*
// rounding, at the owner: the two-step and one-shot plans do that; a ring rounds at every hop and
// must not be used for such a call.
//
// (a) and (b) are shown by walking the graph: values that are only moved (bitcast, reshape,
// transpose, copy, slice, …, through fusions and tuples) keep r(x) = x, and moving commutes with r.
// Anything else, or more than a fixed number of steps, counts as not proved.
//
// Thread safety: pure functions.
#pragma once

#include "xla/hlo_graph.h"

namespace tersum {

// (a) for all operands of `collective`.
bool are_bf16_in_f32(const HloGraph& graph, HloNode collective);

// (b) for the result of `collective`; for a tuple-shaped one, of all its elements.
bool is_only_read_as_bf16(const HloGraph& graph, HloNode collective);

}  // namespace tersum
