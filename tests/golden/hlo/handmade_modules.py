"""Modules that jax 0.10.2 does not emit: every encoding and meaning of the replica groups, and what
the pass must leave alone. Built with XLA's own message classes; tests/unit/xla/ says what is
expected of each file.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from make_modules import message_class

F16, F32, F64, TUPLE, BF16 = 10, 11, 12, 13, 16
# A length-delimited field that no message has: number 1000, "later".
UNKNOWN_FIELD = b"\xc2\x3e\x05later"

Change = Callable[["Module"], None]


def shape(element_type: int, *dimensions: int, order: Sequence[int] | None = None) -> Any:
    """A ShapeProto; minor_to_major is row-major unless `order` is given."""
    out = message_class("ShapeProto")(element_type=element_type, dimensions=dimensions)
    out.is_dynamic_dimension.extend([False] * len(dimensions))
    if order is None:
        order = range(len(dimensions) - 1, -1, -1)
    out.layout.minor_to_major.extend(order)
    out.layout.tail_padding_alignment_in_elements = 1
    return out


def tuple_shape(*shapes: Any) -> Any:
    return message_class("ShapeProto")(element_type=TUPLE, tuple_shapes=shapes)


class Module:
    """sum = all-reduce(x), x: f32[64,16], over all of `devices`, with one partition for each."""

    def __init__(self, partitions: int = 8) -> None:
        self.proto = message_class("HloModuleProto")(
            name="handmade", entry_computation_name="main", entry_computation_id=2
        )
        self.reducer = self.computation("add", 1)
        self.add(self.reducer, "parameter", shape(F32))
        self.add(self.reducer, "parameter", shape(F32), parameter_number=1)
        self.reducer.root_id = self.add(self.reducer, "add", shape(F32), 101, 102).id
        self.main = self.computation("main", 2)
        self.x = self.add(self.main, "parameter", shape(F32, 64, 16))
        self.sum = self.add_sum(self.x.id)
        self.sum.metadata.op_name = "jit(handmade)/psum"
        self.main.root_id = self.sum.id
        self.assign([list(range(partitions))])

    def computation(self, name: str, identifier: int, **fields: Any) -> Any:
        return self.proto.computations.add(name=name, id=identifier, **fields)

    def add(self, computation: Any, opcode: str, result: Any, *operands: int, **fields: Any) -> Any:
        identifier = computation.id * 100 + len(computation.instructions) + 1
        return computation.instructions.add(
            name=f"{opcode}.{identifier}",
            opcode=opcode,
            shape=result,
            id=identifier,
            operand_ids=operands,
            **fields,
        )

    def add_sum(self, operand: int) -> Any:
        return self.add(
            self.main,
            "all-reduce",
            shape(F32, 64, 16),
            operand,
            channel_id=1,
            use_global_device_ids=True,
            called_computation_ids=[1],
        )

    def assign(self, devices: Sequence[Sequence[int]]) -> None:
        """devices[replica][partition], global ids."""
        assignment = self.proto.device_assignment
        assignment.Clear()
        assignment.replica_count = len(devices)
        assignment.computation_count = len(devices[0])
        for partition in range(len(devices[0])):
            ids = [row[partition] for row in devices]
            assignment.computation_devices.add(replica_device_ids=ids)

    def groups(self, *groups: Sequence[int]) -> None:
        self.sum.collective_device_list.SetInParent()
        for group in groups:
            self.sum.collective_device_list.replica_groups.add(replica_ids=group)

    def iota(self, count: int, size: int, dims: Sequence[int], perm: Sequence[int] = ()) -> None:
        iota = self.sum.iota_collective_device_list
        iota.num_replica_groups, iota.num_devices_per_group = count, size
        iota.iota_reshape_dims.extend(dims)
        iota.iota_transpose_perm.extend(perm)

    def mesh(self, sizes: Sequence[int], *axes: int | tuple[int, int, int], **mesh: Any) -> None:
        """An axis is an index, or (index, pre_size, size) of a sub-axis."""
        out = self.sum.mesh_axes_replica_group_list
        for number, size in enumerate(sizes):
            out.mesh.axes.add(name=f"axis_{number}", size=size)
        out.mesh.device_ids.extend(mesh.get("device_ids", ()))
        if "iota" in mesh:
            dims, perm = mesh["iota"]
            out.mesh.iota_transform.reshape_dims.extend(dims)
            out.mesh.iota_transform.transpose_perm.extend(perm)
        for axis in axes:
            if isinstance(axis, int):
                out.axes.add(mesh_axis_index=axis)
            else:
                sub = out.axes.add(mesh_axis_index=axis[0]).sub_axis_info
                sub.pre_size, sub.size = axis[1], axis[2]

    def scatter(self, operand: Any, result: Any, dimension: int) -> None:
        self.x.shape.CopyFrom(operand)
        self.sum.shape.CopyFrom(result)
        self.sum.opcode = "reduce-scatter"
        self.sum.dimensions.append(dimension)

    def element_type(self, element_type: int) -> None:
        for instruction in (*self.reducer.instructions, self.x, self.sum):
            instruction.shape.element_type = element_type

    def fused(self, identifier: int, build: Callable[[Any], None]) -> None:
        """A fusion computation made by `build`; it stands before `main`, as callees do."""
        computation = self.computation("fused", identifier, is_fusion_computation=True)
        build(computation)
        computation.root_id = computation.instructions[-1].id


def method(name: str, *arguments: Any, **named: Any) -> Change:
    return lambda module: getattr(module, name)(*arguments, **named)


def encodings() -> dict[str, Change]:
    halves = ([0, 1, 2, 3], [4, 5, 6, 7])

    def old_lists(module: Module) -> None:
        for group in halves:
            module.sum.replica_groups.add(replica_ids=group)

    return {
        "groups_old_lists": old_lists,
        "groups_lists": method("groups", *halves),
        "groups_lists_empty": method("groups"),
        "groups_absent": lambda module: None,
        "groups_iota": method("iota", 2, 4, [8]),
        "groups_iota_transposed": method("iota", 4, 2, [2, 4], [1, 0]),
        "groups_iota_three": method("iota", 4, 2, [2, 2, 2], [2, 0, 1]),
        "groups_mesh": method("mesh", [2, 4], 0),
        "groups_mesh_minor": method("mesh", [2, 4], 1),
        "groups_mesh_two_axes": method("mesh", [2, 2, 2], 0, 2),
        "groups_mesh_device_ids": method("mesh", [2, 4], 0, device_ids=[3, 1, 4, 0, 5, 2, 7, 6]),
        "groups_mesh_iota": method("mesh", [4, 2], 1, iota=([2, 4], [1, 0])),
        "groups_mesh_sub_axis": method("mesh", [8], (0, 2, 2)),
        "groups_mesh_two_sub_axes": method("mesh", [8], (0, 1, 2), (0, 4, 2)),
        "groups_mesh_disordered": method("mesh", [2, 2, 2], 2, 0),
    }


def meanings() -> dict[str, Change]:
    def with_flags(channel: bool, flattened: bool, *groups: Sequence[int]) -> Change:
        def change(module: Module) -> None:
            module.assign([[20, 31], [10, 41]])
            module.groups(*groups)
            if not channel:
                module.sum.ClearField("channel_id")
            if not flattened:
                module.sum.ClearField("use_global_device_ids")

        return change

    return {
        "meaning_replicas": with_flags(False, False, [0, 1]),
        "meaning_replicas_empty": with_flags(False, False),
        "meaning_cross_partition": with_flags(True, False, [1], [0]),
        "meaning_cross_partition_all": with_flags(True, False, [1, 0]),
        "meaning_cross_partition_empty": with_flags(True, False),
        "meaning_flattened": with_flags(True, True, [0, 3], [2, 1]),
        "meaning_flattened_empty": with_flags(True, True),
        "meaning_undefined": with_flags(False, True, [0, 1, 2, 3]),
    }


def bad_groups() -> dict[str, Change]:
    def two_encodings(module: Module) -> None:
        module.sum.replica_groups.add(replica_ids=range(8))
        module.iota(1, 8, [8])

    def short_assignment(module: Module) -> None:
        del module.proto.device_assignment.computation_devices[7:]

    def unknown_encoding(module: Module) -> None:
        module.sum.MergeFromString(UNKNOWN_FIELD)

    return {
        "bad_groups_unequal": method("groups", [0, 1, 2], [3, 4, 5, 6, 7]),
        "bad_groups_single": method("groups", *([i] for i in range(8))),
        "bad_groups_incomplete": method("groups", [0, 1], [2, 3]),
        "bad_groups_twice": method("groups", [0, 1, 2, 3], [3, 4, 5, 6]),
        "bad_groups_out_of_range": method("groups", [0, 1, 2, 3], [4, 5, 6, 8]),
        "bad_groups_negative": method("groups", [0, 1, 2, 3], [4, 5, 6, -1]),
        "bad_groups_empty_one": method("groups", range(8), []),
        "bad_groups_two_encodings": two_encodings,
        "bad_groups_unknown_encoding": unknown_encoding,
        "bad_iota_product": method("iota", 2, 4, [2, 2]),
        "bad_iota_huge": method("iota", 1 << 40, 1 << 40, [1 << 40, 1 << 40]),
        "bad_iota_permutation": method("iota", 2, 4, [2, 4], [0, 0]),
        "bad_mesh_axis": method("mesh", [2, 4], 2),
        "bad_mesh_huge": method("mesh", [1 << 40, 1 << 40], 1),
        "bad_mesh_sub_axis": method("mesh", [8], (0, 3, 2)),
        "bad_mesh_overlap": method("mesh", [8], (0, 1, 4), (0, 2, 2)),
        "bad_mesh_device_ids": method("mesh", [2, 4], 1, device_ids=[0, 1, 2]),
        "bad_mesh_no_axes": method("mesh", [2, 4]),
        "bad_assignment_absent": lambda m: m.proto.ClearField("device_assignment"),
        "bad_assignment_short": short_assignment,
        "bad_assignment_twice": method("assign", [[0, 1, 2, 3, 4, 5, 6, 6]]),
    }


def bad_reducers() -> dict[str, Change]:
    def reducer(opcode: str, *operands: int) -> Change:
        def change(module: Module) -> None:
            add = module.reducer.instructions[2]
            add.opcode = opcode
            if operands:
                add.operand_ids[:] = operands

        return change

    def reducer_with_more(module: Module) -> None:
        module.add(module.reducer, "negate", shape(F32), 103)

    def reducer_in_f64(module: Module) -> None:
        for instruction in module.reducer.instructions:
            instruction.shape.element_type = F64

    def reducer_missing(module: Module) -> None:
        module.sum.called_computation_ids[:] = [77]

    return {
        "bad_reducer_multiply": reducer("multiply"),
        "bad_reducer_one_parameter": reducer("add", 101, 101),
        "bad_reducer_with_more": reducer_with_more,
        "bad_reducer_in_f64": reducer_in_f64,
        "bad_reducer_missing": reducer_missing,
    }


def bad_arrays() -> dict[str, Change]:
    def of_arrays(operand: Any, result: Any) -> Change:
        def change(module: Module) -> None:
            module.x.shape.CopyFrom(operand)
            module.sum.shape.CopyFrom(result)

        return change

    def dynamic(module: Module) -> None:
        module.x.shape.is_dynamic_dimension[0] = True

    def without_layout(module: Module) -> None:
        module.x.shape.ClearField("layout")
        module.sum.shape.ClearField("layout")

    def tiled(module: Module) -> None:
        for instruction in (module.x, module.sum):
            instruction.shape.layout.tiles.add(dimensions=[8, 128])

    def mixed_types(module: Module) -> None:
        other = module.add(module.main, "parameter", shape(BF16, 4), parameter_number=1)
        module.sum.operand_ids.append(other.id)
        module.sum.shape.CopyFrom(tuple_shape(shape(F32, 64, 16), shape(BF16, 4)))

    f32 = shape(F32, 64, 16)
    return {
        "bad_type_f64": method("element_type", F64),
        "bad_types_mixed": mixed_types,
        "bad_shape_dynamic": dynamic,
        "bad_shape_differs": of_arrays(f32, shape(F32, 64, 17)),
        "bad_shape_negative": of_arrays(shape(F32, -1, 16), shape(F32, -1, 16)),
        "bad_shape_huge": of_arrays(shape(F32, 1 << 40, 1 << 40), shape(F32, 1 << 40, 1 << 40)),
        "bad_shape_empty": of_arrays(shape(F32, 0, 16), shape(F32, 0, 16)),
        "bad_layout_absent": without_layout,
        "bad_layout_tiled": tiled,
        "bad_layout_differs": of_arrays(f32, shape(F32, 64, 16, order=[0, 1])),
        "bad_layout_constrained": lambda m: setattr(m.sum, "constrain_layout", True),
    }


def bad_places() -> dict[str, Change]:
    def started(module: Module) -> None:
        module.sum.opcode = "all-reduce-start"
        done = module.add(module.main, "all-reduce-done", shape(F32, 64, 16), module.sum.id)
        module.main.root_id = done.id

    def called_from(opcode: str, **fields: Any) -> Change:
        def change(module: Module) -> None:
            outer = module.computation("outer", 3)
            x = module.add(outer, "parameter", shape(F32, 64, 16))
            call = module.add(outer, opcode, shape(F32, 64, 16), x.id, called_computation_ids=[2])
            outer.root_id = call.id
            module.proto.entry_computation_id = 3
            for name, value in fields.items():
                setattr(module.main, name, value)

        return change

    return {
        "bad_async_started": started,
        "bad_async_wrapped": called_from("async-start"),
        "bad_async_thread": called_from("call", execution_thread="side"),
        "bad_in_fusion": called_from("fusion", is_fusion_computation=True),
    }


def scatters() -> dict[str, Change]:
    def disordered(module: Module) -> None:
        module.scatter(shape(F32, 8, 4), shape(F32, 2, 4), 0)
        module.mesh([2, 2, 2], 2, 0)

    return {
        "scatter_major": method("scatter", shape(F32, 64, 16), shape(F32, 8, 16), 0),
        "scatter_major_by_layout": method(
            "scatter",
            shape(F32, 16, 64, order=[0, 1]),
            shape(F32, 16, 8, order=[0, 1]),
            1,
        ),
        "scatter_below_ones": method("scatter", shape(F32, 1, 64), shape(F32, 1, 8), 1),
        "bad_scatter_minor": method("scatter", shape(F32, 16, 64), shape(F32, 16, 8), 1),
        "bad_scatter_shards": method("scatter", shape(F32, 64, 16), shape(F32, 9, 16), 0),
        "bad_scatter_dimension": method("scatter", shape(F32, 64, 16), shape(F32, 8, 16), 2),
        "bad_scatter_disordered": disordered,
    }


def promoted(
    before: Sequence[str] = ("convert",),
    after: Sequence[str] = ("convert",),
    start: int = BF16,
    read_in_f32: bool = False,
) -> Change:
    """x: bf16 -> f32 -> sum -> bf16, as XLA promotes it, with other steps on the way."""

    def change(module: Module) -> None:
        module.reducer.name = "add.clone_promoted"
        del module.main.instructions[:]
        value = module.add(module.main, "parameter", shape(start, 64, 16))
        for opcode in before:
            value = module.add(module.main, opcode, shape(F32, 64, 16), value.id)
        value = module.sum = module.add_sum(value.id)
        for opcode in after:
            to = BF16 if opcode == "convert" else F32
            value = module.add(module.main, opcode, shape(to, 64, 16), value.id)
        if read_in_f32:
            module.add(module.main, "negate", shape(F32, 64, 16), module.sum.id)
        module.main.root_id = value.id

    return change


def promotions() -> dict[str, Change]:
    """Ways to keep or to lose the proof that a promoted sum may travel as bf16."""

    def through_fusions(module: Module) -> None:
        promoted(before=(), after=(), start=BF16)(module)
        del module.main.instructions[1:]

        def widen(computation: Any) -> None:
            p = module.add(computation, "parameter", shape(BF16, 64, 16))
            wide = module.add(computation, "convert", shape(F32, 64, 16), p.id)
            module.add(computation, "transpose", shape(F32, 64, 16), wide.id)

        def narrow(computation: Any) -> None:
            p = module.add(computation, "parameter", shape(F32, 64, 16))
            part = module.add(computation, "slice", shape(F32, 64, 16), p.id)
            module.add(computation, "convert", shape(BF16, 64, 16), part.id)

        module.fused(11, widen)
        module.fused(12, narrow)
        f32 = shape(F32, 64, 16)
        wide = module.add(module.main, "fusion", f32, 201, called_computation_ids=[11])
        sum_ = module.add_sum(wide.id)
        narrowed = module.add(
            module.main, "fusion", shape(BF16, 64, 16), sum_.id, called_computation_ids=[12]
        )
        module.main.root_id = narrowed.id

    moves = ("bitcast", "copy", "transpose", "reshape", "reverse")
    return {
        "bf16_native": method("element_type", BF16),
        "promoted": promoted(),
        "promoted_moved": promoted(("convert", *moves), (*moves, "convert")),
        "promoted_fusions": through_fusions,
        "promoted_more_precise": promoted(("convert", "sine")),
        "promoted_from_f16": promoted(start=F16),
        "promoted_read_in_f32": promoted(read_in_f32=True),
        "promoted_result_leaves": promoted(after=()),
        "promoted_result_used_first": promoted(after=("negate", "convert")),
    }


def keeps() -> dict[str, Change]:
    def unknown_fields(module: Module) -> None:
        module.groups(range(8))
        first = module.x
        for message in (module.proto, module.main, module.sum, first):
            message.MergeFromString(UNKNOWN_FIELD)

    def control(module: Module) -> None:
        other = module.add(module.main, "parameter", shape(F32), parameter_number=1)
        module.sum.control_predecessor_ids.append(other.id)
        module.sum.backend_config = b"left over"

    return {"keep_unknown_fields": unknown_fields, "keep_control_predecessors": control}


def write_all(root: Path) -> None:
    folder = root / "handmade"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    kinds = (
        encodings,
        meanings,
        bad_groups,
        bad_reducers,
        bad_arrays,
        bad_places,
        scatters,
        promotions,
        keeps,
    )
    for kind in kinds:
        for name, change in kind().items():
            module = Module()
            change(module)
            data = module.proto.SerializeToString(deterministic=True)
            (folder / f"{name}.pb").write_bytes(data)
