"""``install``, ``uninstall``, ``report``, ``stats``: the switch from XLA's sums to tersum's."""

from __future__ import annotations

import atexit
import threading

import tersum
from tersum.jax import _bootstrap, _cache_salt
from tersum.jax._jax_version import require_jax, require_xla_core
from tersum.jax._options import InstallOptions
from tersum.jax._report import Report, Stats, rows_with_choices

jax = require_jax()
_xla = require_xla_core()
_PASS_NAME = "tersum"
_PLATFORM = "cpu"
# Counts the changes of what the pass writes into a program: part of the compilation cache's key.
_PASS_VERSION = 2
# Below this, one round trip costs more than the bytes that a codec saves on a 1 Gbit/s link:
# 64 KiB of float32 take 0.5 ms there.
DEFAULT_MIN_BYTES = 64 * 1024
# Longer than tersum's own default: processes of one program may compile for a while before they
# start the collective that the first of them waits in.
DEFAULT_TIMEOUT_MS = 120_000


class _Switch:
    """What is installed in this process. Its lock is held for changes, not while compiling."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.options: InstallOptions | None = None
        self.hooked = False
        self.targets_registered = False
        # Those that the HLO pass works with.
        self.pass_options: InstallOptions | None = None
        # World options in use, and how often they changed: a name for the rendezvous that all
        # processes count alike.
        self.world_options: InstallOptions | None = None
        self.generation = 0


_switch = _Switch()


def install(
    codec: str = "int8/128",
    *,
    min_bytes: int = DEFAULT_MIN_BYTES,
    timeout_ms: int = DEFAULT_TIMEOUT_MS,
    local: bool = False,
    plan: str = "auto",
    transport: str = "auto",
    listen_address: str = "",
    listen_port: int = 0,
    tcp_streams: int = 0,
    flatten_every: int = 1,
    flatten_state: bytes = b"",
    feedback_state: bytes = b"",
    rounding_seed: int = 0,
    max_rel_error: float = 0.0,
) -> None:
    """Lets all-reduces and reduce-scatters of this process's JAX programs travel through tersum.

    Call it in every process with the same options, before or after programs were compiled (they
    are compiled again). Returns at once; the processes meet when the first program runs that needs
    them, through the store of ``jax.distributed``.

    - ``codec``: how float32, bfloat16 and float16 sums travel: ``"exact"``, ``"bf16"``, ``"int8"``,
      ``"int8/32"``, ``"int4/128"``, …; ``"off"`` takes only operations that choose for themselves;
      ``"auto"`` gives each operation the cheapest codec within ``max_rel_error``, and
      ``"auto:int8/128|int6/128+flatten"`` the cheapest of those that it names.
    - ``max_rel_error``: what the codecs of ``"auto"`` may cost, ``0.01`` say: of each sum, as roots
      of sums of squares, in samples of the operation's recent calls (``docs/tuning.md``). All
      processes choose alike; :func:`report` says what. It also serves operations that ask for
      ``set_xla_metadata(tersum="auto")``.
    - ``min_bytes``: operations with fewer bytes on a device are left to XLA.
    - ``timeout_ms``: deadline of one collective, and of the meeting. Errors come as
      ``jax.errors.JaxRuntimeError`` that name the process concerned.
    - ``local``: also take groups whose devices are all in this process; there is no wire to save.
    - ``plan``: ``"auto"``, ``"two_step"``, ``"ring"``, … (``docs/plans.md``).
    - ``transport``: ``"auto"``, ``"tcp"``, ``"shm"``; ``listen_address`` (an address or interface),
      ``listen_port`` and ``tcp_streams`` as in :class:`tersum.Communicator`.
    - ``flatten_every``: of codecs with ``+flatten``: in how many runs an operation's result is
      looked at once; ``flatten_state``, also with ``+clip:learned`` and
      ``"kmeans:K"``: what :func:`save_flatten` of
      an earlier run gave.
    - ``feedback_state``: of codecs with ``+feedback``: what :func:`save_feedback` gave in this
      process in an earlier run.
    - ``rounding_seed``: of codecs with ``+sr``: what the random rounding begins from. The n-th call
      of an operation rounds alike in every run with the same seed.

    Installing again with the same options does nothing; with others it raises
    ``InvalidArgumentError``, as do unknown codecs, plans and transports. Any thread.
    """
    _activate(
        InstallOptions(
            codec=codec,
            min_bytes=min_bytes,
            timeout_ms=timeout_ms,
            local=local,
            plan=plan,
            transport=transport,
            listen_address=listen_address,
            listen_port=listen_port,
            tcp_streams=tcp_streams,
            flatten_every=flatten_every,
            flatten_state=flatten_state,
            feedback_state=feedback_state,
            rounding_seed=rounding_seed,
            max_rel_error=max_rel_error,
        ).validate()
    )


def uninstall() -> None:
    """Gives the collectives back to XLA; compiled programs are dropped and compile again.

    Executables that the caller compiled ahead of time go on through tersum. Does nothing when
    tersum is not installed. Any thread.
    """
    with _switch.lock:
        if _switch.options is None:
            return
        _switch.options = None
        jax.extend.xla.clear_hlo_module_transformation(_PASS_NAME, platforms=_PLATFORM)
        _switch.hooked = False
        _cache_salt.set_salt("")
        jax.clear_caches()


def installed() -> bool:
    """True between :func:`install` and :func:`uninstall`."""
    options = _switch.options
    return options is not None and options.all_collectives


def active() -> bool:
    """True while some sums travel through tersum: installed, or asked for by ``psum`` alone."""
    return _switch.options is not None


def report() -> Report:
    """Every collective of every program compiled since tersum was installed, and what became of it.

    A list of :class:`CollectiveRow`, whose ``str()`` is a table. What XLA removed or merged before
    (it combines independent all-reduces) appears as XLA left it. Operations with the codec
    ``auto:E`` also have what their last calls in this process took. Any thread.
    """
    return Report(rows_with_choices(_xla.report(), _xla.choices()))


def stats() -> Stats:
    """What this process's calls have cost so far. Any thread."""
    return Stats(**_xla.stats())


def save_flatten() -> bytes:
    """What operations with ``+flatten``, ``+clip:learned`` or ``"kmeans:K"`` have learned, for
    ``install(flatten_state=)`` of a later run, or :func:`load_flatten`.

    Waits for the programs in flight. Every process of the job has the same for groups that it is
    in; each keeps its own. Raises ClosedError before the first program with a sum has run.
    """
    saved: bytes = _xla.save_flatten()
    return saved


def load_flatten(saved: bytes) -> None:
    """Puts saved states in place of those of the same operations: in every process, between the
    same programs. InvalidArgumentError if ``saved`` is not what :func:`save_flatten` returned."""
    _xla.load_flatten(saved)


def reset_flatten() -> None:
    """Forgets what :func:`save_flatten` would give: in every process, between the same
    programs. Waits for the programs in flight."""
    _xla.reset_flatten()


def save_feedback() -> bytes:
    """What operations with ``+feedback`` owe on this process's devices so far, for
    ``install(feedback_state=)`` of a later run, or :func:`load_feedback`: four bytes for each value
    of each operation on each device.

    Waits for the programs in flight. Each process has its own. Raises ClosedError before the first
    program with a sum has run.
    """
    saved: bytes = _xla.save_feedback()
    return saved


def load_feedback(saved: bytes) -> None:
    """Puts that in place of all that is owed here, between two programs. InvalidArgumentError if
    ``saved`` is not what :func:`save_feedback` returned."""
    _xla.load_feedback(saved)


def reset_feedback() -> None:
    """Forgets what operations with ``+feedback`` have lost, in this process. Waits for the programs
    in flight."""
    _xla.reset_feedback()


def ensure_hook_for_psum() -> None:
    """Makes sure that :func:`tersum.jax.psum` is seen by the compiler, installed or not."""
    if _switch.options is not None:
        return
    defaults = InstallOptions(
        codec="off",
        min_bytes=0,
        timeout_ms=DEFAULT_TIMEOUT_MS,
        local=False,
        plan="auto",
        transport="auto",
        listen_address="",
        listen_port=0,
        tcp_streams=0,
        all_collectives=False,
    )
    with _switch.lock:
        if _switch.options is None:
            _activate(defaults)


def _activate(options: InstallOptions) -> None:
    with _switch.lock:
        current = _switch.options
        if current == options:
            return
        if current is not None and current.all_collectives:
            raise tersum.InvalidArgumentError(
                "tersum.jax.install() was called before with other options "
                f"({current.differences(options)}); call tersum.jax.uninstall() first"
            )
        _register_targets()
        _configure_worlds(options)
        _switch.options = options
        _cache_salt.set_salt(_salt(options))
        if not _switch.hooked:
            jax.extend.xla.register_hlo_module_transformation(
                _transform, name=_PASS_NAME, platforms=_PLATFORM
            )
            _switch.hooked = True
        # Programs compiled so far contain XLA's own collectives. Those that only tersum.jax.psum
        # touches are being traced just now.
        if options.all_collectives:
            jax.clear_caches()


def _register_targets() -> None:
    if _switch.targets_registered:
        return
    for name, handler in _xla.handlers().items():
        jax.ffi.register_ffi_target(name, handler, platform=_PLATFORM)
    atexit.register(_xla.close)
    _switch.targets_registered = True


def _configure_worlds(options: InstallOptions) -> None:
    if _switch.world_options == options:
        return
    _switch.generation += 1
    generation = _switch.generation
    _xla.configure(
        describe=_bootstrap.describe_process,
        open_store=lambda: _bootstrap.open_store(options, generation),
        name=f"jax/{generation}",
        timeout_ms=options.timeout_ms,
        transport=options.transport,
        listen_address=options.listen_address,
        listen_port=options.listen_port,
        tcp_streams=options.tcp_streams,
        flatten_every=options.flatten_every,
        flatten_state=options.flatten_state,
        feedback_state=options.feedback_state,
        rounding_seed=options.rounding_seed,
    )
    _switch.world_options = options


def _salt(options: InstallOptions) -> str:
    return f"tersum {tersum.__version__} pass {_PASS_VERSION} {options.agreed()}"


def _transform(module: bytes) -> bytes | None:
    """The compiler hook: called by XLA for every program, in the compiling thread."""
    with _switch.lock:
        options = _switch.options
        if options is None:
            return None
        if _switch.pass_options != options:
            _configure_pass(options)
    _cache_salt.ensure_hook()
    changed: bytes | None = _xla.transform(module)
    return changed


def _configure_pass(options: InstallOptions) -> None:
    # Only now, when something compiles, are the devices known.
    _xla.configure_pass(
        codec=options.codec,
        auto_codec=options.auto_codec,
        plan=options.plan,
        timeout_ms=options.timeout_ms,
        min_bytes=options.min_bytes,
        processes=_bootstrap.devices_of_processes(),
        rewrite_local_groups=options.local,
    )
    _switch.pass_options = options
