"""tersum.jax in one process: messages, options, caches, the module runner."""

from __future__ import annotations

import inspect
import os
import re
import subprocess
import sys
import textwrap
import threading
from pathlib import Path
from typing import Any

import pytest

import tersum
from tersum import _core

pytest.importorskip("jax")
if not _core.has_xla:
    pytest.skip("tersum was built without its JAX part", allow_module_level=True)

import tersum.jax
from tersum.jax import _bootstrap, _cache_salt
from tersum.jax._jax_version import parse_version
from tersum.jax._options import InstallOptions

PACKAGE = str(Path(tersum.__file__).parents[1])
# A psum over four devices of one process; TERSUM_INSTALL holds install()'s options, if any.
PROGRAM = """
import os, sys
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import Mesh, PartitionSpec as P
print("arguments", sys.argv[1:], __name__)
if "TERSUM_INSTALL" in os.environ:
    import tersum.jax
    tersum.jax.install(**eval(os.environ["TERSUM_INSTALL"]))
mesh = Mesh(np.array(jax.devices()), ("x",))
x = jnp.asarray(np.random.default_rng(5).standard_normal((4, 50_000)), dtype=jnp.float32)
body = jax.shard_map(lambda x: jax.lax.psum(x, "x"), mesh=mesh, in_specs=P("x"), out_specs=P())
f = jax.jit(body)
want = np.asarray(x).astype(np.float64).sum(0)
y = jax.block_until_ready(f(x))  # all devices, not only the one that is read
error = np.linalg.norm(np.asarray(y)[0] - want) / np.linalg.norm(want)
if "tersum.jax" in sys.modules:
    import tersum.jax
    print("calls", tersum.jax.stats().calls, "rows", len(tersum.jax.report()))
print("error", error)
"""


def test_the_page_has_the_whole_signature_and_says_what_each_option_means() -> None:
    page = (Path(__file__).parents[2] / "docs" / "jax.md").read_text()
    options = page[page.index("## Options") :]
    options = options[: options.index("\n## ", 1)]
    documented = re.search(r"^`(install\(.*?\))`$", options, re.MULTILINE | re.DOTALL)
    assert documented
    signature = inspect.signature(tersum.jax.install)
    bare = [
        parameter.replace(annotation=inspect.Parameter.empty)
        for parameter in signature.parameters.values()
    ]
    text = str(inspect.Signature(bare)).replace("'", '"')
    assert " ".join(documented[1].split()) == f"install{text}"
    first_cells = [row.split("|")[1] for row in options.splitlines() if row.startswith("| `")]
    explained = {name for cell in first_cells for name in re.findall(r"`(\w+)`", cell)}
    assert explained == set(signature.parameters)


def run(
    code: str | Path, *, module: tuple[str, ...] = (), arguments: tuple[str, ...] = (), **env: str
) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *module]
    command += [str(code)] if isinstance(code, Path) else ["-c", textwrap.dedent(code)]
    return subprocess.run(
        [*command, *arguments],
        env={
            **os.environ,
            "PYTHONPATH": PACKAGE,
            "JAX_PLATFORMS": "cpu",
            "XLA_FLAGS": "--xla_force_host_platform_device_count=4",
            **env,
        },
        capture_output=True,
        text=True,
        timeout=120,
    )


def figure(output: str, name: str) -> float:
    for line in output.splitlines():
        words = line.split()
        if name in words:
            return float(words[words.index(name) + 1])
    raise AssertionError(f"no {name!r} in\n{output}")


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    return path


def test_missing_jax_says_what_to_install() -> None:
    ended = run("import sys; sys.modules['jax'] = None; import tersum; import tersum.jax")
    assert ended.returncode == 1
    assert ended.stderr.strip().endswith(
        "ImportError: tersum.jax needs JAX, which is missing here: pip install 'jax>=0.10.2'"
    )


@pytest.mark.parametrize("version", ["0.4.38", "0.10.1"])
def test_old_jax_says_what_to_install(version: str) -> None:
    ended = run(f"import jax; jax.__version__ = {version!r}; import tersum.jax")
    assert ended.stderr.strip().endswith(
        "ImportError: tersum.jax needs jax >= 0.10.2 for its compiler hook (jax.extend.xla), and "
        f"this is jax {version}: pip install 'jax>=0.10.2'"
    )


def test_jax_without_the_hook_counts_as_old() -> None:
    ended = run("import sys, jax; sys.modules['jax.extend.xla'] = None; import tersum.jax")
    assert "for its compiler hook (jax.extend.xla)" in ended.stderr


def test_versions() -> None:
    assert parse_version("0.10.2") == (0, 10, 2)
    assert parse_version("0.11.0.dev20260801+abc") == (0, 11, 0)
    assert parse_version("weird") == ()


def test_a_second_install_must_agree() -> None:
    ended = run(
        """
        import tersum, tersum.jax
        tersum.jax.install("int8")
        tersum.jax.install("int8/128")  # the same codec
        assert tersum.jax.installed()
        try:
            tersum.jax.install("int4/32", min_bytes=5)
        except tersum.InvalidArgumentError as error:
            print(error)
        tersum.jax.uninstall()
        assert not tersum.jax.installed()
        tersum.jax.uninstall()
        tersum.jax.install("int4/32", min_bytes=5)
        """
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.strip() == (
        "tersum.jax.install() was called before with other options (codec='int8/128' against "
        "'int4/32', min_bytes=65536 against 5); call tersum.jax.uninstall() first"
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"codec": "int9"}, "int9"),
        ({"codec": "int8/33"}, "33"),
        ({"plan": "star"}, "no plan is called 'star'; use one of auto, two_step, ring, one_shot"),
        ({"transport": "rdma"}, "no transport is called 'rdma'; use one of auto, tcp, shm"),
        ({"min_bytes": -1}, "min_bytes is -1; use 0 or more"),
        ({"timeout_ms": 0}, "timeout_ms is 0; use a positive number of milliseconds"),
    ],
)
def test_wrong_options_are_named(options: dict[str, Any], message: str) -> None:
    import tersum.jax

    with pytest.raises(tersum.InvalidArgumentError, match=message):
        tersum.jax.install(**options)
    assert not tersum.jax.installed()


def test_an_empty_report_says_so() -> None:
    import tersum.jax

    assert "no collective yet" in str(tersum.jax.Report([]))


@pytest.mark.parametrize("hook_of_the_user", [False, True])
def test_the_persistent_cache_never_serves_another_choice(
    tmp_path: Path, program: Path, hook_of_the_user: bool
) -> None:
    """Stock, int8, int4, stock, int8 share one cache folder; a hit is used, never a stale one."""
    cache = {
        "JAX_COMPILATION_CACHE_DIR": str(tmp_path / "cache"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    }
    if hook_of_the_user:
        hook = "import jax._src.cache_key as k\nk.custom_hook = lambda: 'theirs'\n"
        program.write_text(hook + program.read_text())
    errors, rows = [], []
    for codec in (None, "int8/128", "int4/32", None, "int8/128"):
        wish = {} if codec is None else {"TERSUM_INSTALL": f"dict(codec={codec!r}, local=True)"}
        ended = run(program, **cache, **wish)
        assert ended.returncode == 0, ended.stderr
        errors.append(figure(ended.stdout, "error"))
        if codec is not None:
            assert figure(ended.stdout, "calls") == 4
            rows.append(figure(ended.stdout, "rows"))
    stock, int8, int4, stock_again, int8_again = errors
    assert stock < 1e-6 and stock_again == stock
    assert 1e-3 < int8 < 2e-2 < int4 < 2e-1
    assert int8_again == int8
    # The last run found its program in the cache, so nothing was compiled, and it still ran through
    # tersum.
    assert rows == [1, 1, 0]


def test_a_table_file_is_a_codec(tmp_path: Path, program: Path) -> None:
    file = tmp_path / "thirds.txt"
    file.write_text("-0.75 -0.25 0.25 0.75")
    ended = run(program, TERSUM_INSTALL=repr({"codec": f"table:{file}/32", "local": True}))
    assert ended.returncode == 0, ended.stderr
    assert 0.2 < figure(ended.stdout, "error") < 0.8
    assert figure(ended.stdout, "calls") == 4


@pytest.mark.parametrize(
    ("codec", "error"), [("sum8/256", 7.9e-3), ("sum:exp", 0.49), ("lut2", 1.0)]
)
def test_devices_share_the_scales_of_their_sums(program: Path, codec: str, error: float) -> None:
    ended = run(program, TERSUM_INSTALL=repr({"codec": codec, "local": True}))
    assert ended.returncode == 0, ended.stderr
    assert error / 2 < figure(ended.stdout, "error") < error * 2
    assert figure(ended.stdout, "calls") == 4


def test_the_salt_joins_a_hook_that_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    from jax._src import cache_key

    monkeypatch.setattr(cache_key, "custom_hook", lambda: "theirs")
    _cache_salt.set_salt("ours")
    try:
        assert cache_key.custom_hook() == "theirsours"
        assert _cache_salt.hook_in_place()
        monkeypatch.setattr(cache_key, "custom_hook", lambda: "another")
        assert not _cache_salt.hook_in_place()
        _cache_salt.ensure_hook()
        assert cache_key.custom_hook() == "anotherours"
    finally:
        _cache_salt.set_salt("")
    assert cache_key.custom_hook() == "another"


def test_without_a_hook_the_persistent_cache_goes_off(monkeypatch: pytest.MonkeyPatch) -> None:
    import jax
    from jax._src import cache_key

    before = jax.config.jax_enable_compilation_cache
    monkeypatch.delattr(cache_key, "custom_hook")
    try:
        jax.config.update("jax_enable_compilation_cache", True)
        with pytest.warns(RuntimeWarning, match="tersum turned that cache off"):
            _cache_salt.ensure_hook()
        assert not jax.config.jax_enable_compilation_cache
    finally:
        jax.config.update("jax_enable_compilation_cache", before)


def test_a_program_runs_through_tersum_without_a_line(program: Path) -> None:
    ended = run(
        program,
        module=("-m", "tersum.jax", "--codec", "int4/32", "--local", "--report"),
        arguments=("--steps", "3"),
    )
    assert ended.returncode == 0, ended.stderr
    assert "arguments ['--steps', '3'] __main__" in ended.stdout
    assert 2e-2 < figure(ended.stdout, "error") < 2e-1
    assert figure(ended.stdout, "calls") == 4
    assert "int4/32" in ended.stderr and "all-reduce" in ended.stderr


def test_the_runner_chooses_within_an_error(program: Path) -> None:
    choice = ("--codec", "auto", "--max-rel-error", "0.05", "--local", "--report")
    ended = run(program, module=("-m", "tersum.jax", *choice))
    assert ended.returncode == 0, ended.stderr
    assert 0 < figure(ended.stdout, "error") < 0.055
    assert "auto:0.05 (int" in ended.stderr


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--codec", "int9"), "int9"),
        (("--plan", "star"), "no plan is called 'star'"),
        (("--min-bytes", "-2"), "min_bytes is -2"),
        (("--codec", "auto"), "pass max_rel_error=1e-2"),
    ],
)
def test_the_runner_refuses_wrong_options(
    program: Path, options: tuple[str, ...], message: str
) -> None:
    ended = run(program, module=("-m", "tersum.jax", *options))
    assert ended.returncode == 2
    assert message in ended.stderr
    assert "Traceback" not in ended.stderr


def test_the_runner_names_a_missing_program(tmp_path: Path) -> None:
    ended = run(tmp_path / "nothing.py", module=("-m", "tersum.jax"))
    assert ended.returncode == 2
    assert f"no such program: {tmp_path}/nothing.py" in ended.stderr


def options(**changes: Any) -> InstallOptions:
    values: dict[str, Any] = {
        "codec": "int8/128",
        "min_bytes": 0,
        "timeout_ms": 500,
        "local": False,
        "plan": "auto",
        "transport": "auto",
        "listen_address": "",
        "listen_port": 0,
        "tcp_streams": 0,
    }
    return InstallOptions(**{**values, **changes})


def agree_in_threads(wishes: list[InstallOptions | None]) -> list[BaseException | None]:
    """One thread per process; None stands for a process that never comes."""
    store = tersum.MemoryStore()
    outcomes: list[BaseException | None] = [None] * len(wishes)

    def process(index: int, wish: InstallOptions) -> None:
        try:
            _bootstrap.agree(store, wish, index, len(wishes))  # type: ignore[arg-type]
        except Exception as error:
            outcomes[index] = error

    threads = [
        threading.Thread(target=process, args=(index, wish))
        for index, wish in enumerate(wishes)
        if wish is not None
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
        assert not thread.is_alive()
    return outcomes


def test_equal_options_agree() -> None:
    # Where a process listens is its own affair.
    assert agree_in_threads([options(), options(listen_address="eth0"), options()]) == [None] * 3


def test_a_different_process_is_named_everywhere() -> None:
    outcomes = agree_in_threads([options(), options(), options(codec="int4/32")])
    for outcome in outcomes:
        assert isinstance(outcome, tersum.DisagreementError)
        assert "process 0 has" in str(outcome) and "process 2 has" in str(outcome)
        assert "int4/32" in str(outcome)


def test_an_absent_process_is_named_everywhere() -> None:
    for outcome in agree_in_threads([options(), options(), None])[:2]:
        assert isinstance(outcome, TimeoutError)
        assert "process 2 did not install tersum within 500 ms" in str(outcome)


def test_an_absent_first_process_is_named() -> None:
    outcome = agree_in_threads([None, options()])[1]
    assert isinstance(outcome, TimeoutError)
    assert "process 0 did not install tersum within 1000 ms" in str(outcome)


class FakeClient:
    """The key-value part of jax.distributed's client."""

    def __init__(self) -> None:
        self.values: dict[str, bytes] = {}

    def key_value_set_bytes(self, key: str, value: bytes) -> None:
        if key in self.values:
            raise RuntimeError("ALREADY_EXISTS: key exists")
        self.values[key] = value

    def blocking_key_value_get_bytes(self, key: str, timeout_ms: int) -> bytes:
        if key not in self.values:
            raise RuntimeError("DEADLINE_EXCEEDED: waited too long")
        return self.values[key]


def test_the_distributed_store() -> None:
    client = FakeClient()
    store = _bootstrap.DistributedStore(client, "tersum/1/", "10.0.0.1")
    store.set("a", b"\0x")
    store.set("a", b"\0x")
    assert client.values == {"tersum/1/a": b"\0x"}
    assert store.wait("a", 10) == b"\0x"
    assert store.host() == "10.0.0.1"
    with pytest.raises(ValueError, match="to another value"):
        store.set("a", b"y")
    with pytest.raises(TimeoutError, match="'tersum/1/b' was not set within 10 ms"):
        store.wait("b", 10)


@pytest.mark.parametrize(
    ("address", "host"),
    [("10.0.0.1:1234", "10.0.0.1"), ("[::1]:80", "::1"), ("head.cluster:9", "head.cluster")],
)
def test_the_host_of_a_coordinator(address: str, host: str) -> None:
    assert _bootstrap.host_of(address) == host
