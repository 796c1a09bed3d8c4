"""Which rank a launcher's environment makes of a process."""

from __future__ import annotations

import pytest

from tersum.cli.command_error import CommandError
from tersum.cli.launch_place import find_place, first_node

MASTER = {"MASTER_ADDR": "node1", "MASTER_PORT": "29400"}


def test_no_launcher() -> None:
    assert find_place({"PATH": "/bin", **MASTER}) is None


def test_torchrun_meets_at_the_agents_store() -> None:
    environ = {"RANK": "3", "WORLD_SIZE": "4", "TORCHELASTIC_USE_AGENT_STORE": "True", **MASTER}
    assert find_place(environ) == ("torchrun", 3, 4, "torchelastic://node1:29400")


def test_plain_rank_variables_meet_at_the_master() -> None:
    assert find_place({"RANK": "0", "WORLD_SIZE": "2", **MASTER}) == (
        "torchrun",
        0,
        2,
        "tcp://node1:29400",
    )


def test_open_mpi_on_one_machine_needs_no_master() -> None:
    environ = {
        "OMPI_COMM_WORLD_RANK": "1",
        "OMPI_COMM_WORLD_SIZE": "2",
        "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
        "PMIX_NAMESPACE": "prterun-host-123@1",
    }
    place = find_place(environ)
    assert place is not None and place[:3] == ("mpirun", 1, 2)
    assert place.store.startswith("tcp://127.0.0.1:")
    other = find_place({**environ, "OMPI_COMM_WORLD_RANK": "0"})
    assert other is not None and other.store == place.store


def test_open_mpi_on_two_machines_asks_for_a_master() -> None:
    environ = {
        "OMPI_COMM_WORLD_RANK": "1",
        "OMPI_COMM_WORLD_SIZE": "2",
        "OMPI_COMM_WORLD_LOCAL_SIZE": "1",
        "PMIX_NAMESPACE": "job",
    }
    with pytest.raises(CommandError, match="set MASTER_ADDR and MASTER_PORT, or pass --store"):
        find_place(environ)
    assert find_place({**environ, **MASTER}) == ("mpirun", 1, 2, "tcp://node1:29400")
    given = find_place(environ, "tcp://a:1")
    assert given is not None and given.store == "tcp://a:1"


def test_mpich() -> None:
    environ = {"PMI_RANK": "0", "PMI_SIZE": "3", "MPI_LOCALNRANKS": "3", "PMI_PORT": "host:1"}
    place = find_place(environ)
    assert place is not None and place[:3] == ("mpirun", 0, 3)


def test_slurm_step_meets_at_its_first_node() -> None:
    environ = {
        "SLURM_PROCID": "5",
        "SLURM_STEP_ID": "0",
        "SLURM_STEP_NUM_TASKS": "8",
        "SLURM_JOB_ID": "77",
        "SLURM_STEP_NODELIST": "gpu[07-08]",
    }
    place = find_place(environ)
    assert place is not None and place[:3] == ("srun", 5, 8)
    assert place.store.startswith("tcp://gpu07:")


def test_a_slurm_batch_script_is_no_rank() -> None:
    assert find_place({"SLURM_JOB_ID": "77", "SLURM_NTASKS": "8"}) is None


@pytest.mark.parametrize(
    ("nodes", "first"),
    [("a", "a"), ("a,b", "a"), ("n[1-4]", "n1"), ("n[07,09-12],m3", "n07"), ("x-1,x-2", "x-1")],
)
def test_first_node(nodes: str, first: str) -> None:
    assert first_node(nodes) == first


def test_a_rank_that_is_no_number() -> None:
    with pytest.raises(CommandError, match="RANK must be a number"):
        find_place({"RANK": "x", "WORLD_SIZE": "2", **MASTER})
