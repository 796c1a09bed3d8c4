"""Which rank of which group this process is, by what started it: torchrun, mpirun or srun.

Pure functions of an environment, so that they can be tested without a launcher.
"""

from __future__ import annotations

import os
import re
import zlib
from collections.abc import Mapping
from typing import NamedTuple

from tersum.cli.command_error import CommandError

#: Ports that job numbers are spread over; above the usual services, below the ephemeral range.
_PORT_FIRST, _PORT_COUNT = 20_000, 10_000


class Place(NamedTuple):
    """This process in its group."""

    launcher: str  #: "torchrun", "mpirun" or "srun"
    rank: int
    size: int
    store: str  #: URL, or "torchelastic://host:port" for the store that torchrun's agent serves


def find_place(environ: Mapping[str, str], store: str | None = None) -> Place | None:
    """The place that a launcher gave, or None without one. ``store`` overrides the meeting point.

    CommandError when a launcher gave a rank but nothing to meet at; the text says what to pass.
    """
    for find in (_torchrun, _open_mpi, _pmi, _slurm):
        place = find(environ)
        if place is not None:
            break
    else:
        return None
    if store is not None:
        return place._replace(store=store)
    if not place.store:
        raise CommandError(
            f"started by {place.launcher} on several machines, but nothing says where the ranks "
            "meet: set MASTER_ADDR and MASTER_PORT, or pass --store tcp://HOST:PORT (HOST runs "
            "rank 0)",
            exit_status=2,
        )
    return place


def _torchrun(environ: Mapping[str, str]) -> Place | None:
    if "RANK" not in environ or "WORLD_SIZE" not in environ:
        return None
    rank, size = _number(environ, "RANK"), _number(environ, "WORLD_SIZE")
    url = _master(environ)
    # The agent of torchrun holds the port itself; its store is the one to meet at.
    if url and environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True":
        url = url.replace("tcp://", "torchelastic://")
    return Place("torchrun", rank, size, url)


def _open_mpi(environ: Mapping[str, str]) -> Place | None:
    if "OMPI_COMM_WORLD_RANK" not in environ:
        return None
    rank, size = _number(environ, "OMPI_COMM_WORLD_RANK"), _number(environ, "OMPI_COMM_WORLD_SIZE")
    local = _number(environ, "OMPI_COMM_WORLD_LOCAL_SIZE", size)
    job = environ.get("PMIX_NAMESPACE") or environ.get("OMPI_MCA_ess_base_jobid", "")
    return Place("mpirun", rank, size, _master(environ) or _local(size == local, job))


def _pmi(environ: Mapping[str, str]) -> Place | None:
    if "PMI_RANK" not in environ or "PMI_SIZE" not in environ:
        return None
    rank, size = _number(environ, "PMI_RANK"), _number(environ, "PMI_SIZE")
    local = _number(environ, "MPI_LOCALNRANKS", 0)
    # Hydra has one control port per run, which so names the run.
    job = environ.get("PMI_PORT") or environ.get("HYDI_CONTROL_FD", "") + str(os.getppid())
    return Place("mpirun", rank, size, _master(environ) or _local(size == local, job))


def _slurm(environ: Mapping[str, str]) -> Place | None:
    # SLURM_NTASKS alone is set in a batch script, which is no task: only a step has a task id.
    if "SLURM_PROCID" not in environ or "SLURM_STEP_ID" not in environ:
        return None
    rank = _number(environ, "SLURM_PROCID")
    size = _number(environ, "SLURM_STEP_NUM_TASKS", _number(environ, "SLURM_NTASKS", 1))
    url = _master(environ)
    nodes = environ.get("SLURM_STEP_NODELIST") or environ.get("SLURM_NODELIST", "")
    if not url and nodes:
        job = f"{environ.get('SLURM_JOB_ID', '')}.{environ['SLURM_STEP_ID']}"
        url = f"tcp://{first_node(nodes)}:{_job_port(job)}"
    return Place("srun", rank, size, url)


def first_node(nodes: str) -> str:
    """The first host of a Slurm list: ``"gpu[07-09,12],login"`` gives ``"gpu07"``."""
    match = re.match(r"([^,\[]+)(?:\[([^\],-]+))?", nodes)
    if match is None:
        raise CommandError(f"cannot read the node list {nodes!r}: pass --store tcp://HOST:PORT")
    return match[1] + (match[2] or "")


def _master(environ: Mapping[str, str]) -> str:
    if "MASTER_ADDR" not in environ or "MASTER_PORT" not in environ:
        return ""
    host = environ["MASTER_ADDR"]
    port = _number(environ, "MASTER_PORT")
    return f"tcp://[{host}]:{port}" if ":" in host else f"tcp://{host}:{port}"


def _local(one_machine: bool, job: str) -> str:
    return f"tcp://127.0.0.1:{_job_port(job)}" if one_machine and job else ""


def _job_port(job: str) -> int:
    """A port that all ranks of a job derive alike and that other jobs rarely share."""
    return _PORT_FIRST + zlib.crc32(job.encode()) % _PORT_COUNT


def _number(environ: Mapping[str, str], name: str, default: int | None = None) -> int:
    text = environ.get(name, "" if default is None else str(default))
    if not text.isdigit():
        raise CommandError(f"{name} must be a number in the environment, got {text!r}")
    return int(text)
