"""The events of a trace, in which a rank records its work. Each kind of event is a frozen dataclass.

Every line of a trace is a JSON object: the event's name under `event`, and its fields.
`docs/run-folder.md` lists the events, with the fields of those to which columns refer (`make generated`).

Every `*_ns` is a whole number of nanoseconds of CLOCK_MONOTONIC, one clock for all ranks of a host. `step` counts
the completed steps of the whole run. A field whose value is None is left out of the line.
"""

from __future__ import annotations

import dataclasses
import re
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, get_args

from ckptbench.common.shape import check

FileKind = Literal["state", "replica", "own", "index"]
MemoryMoment = Literal["before", "saved", "written", "durable", "epoch", "closed"]

Ns = Annotated[int, "ns"]
Step = Annotated[int, "completed steps of the whole run"]
EpochNumber = Annotated[int, "from 0"]


@dataclass(frozen=True, slots=True, kw_only=True)
class File:
    """One file of a checkpoint version."""

    name: str
    kind: Annotated[
        FileKind,
        "`state`: model and optimizer; `replica`: a whole copy of them by each rank; `own`: the "
        "state of one rank only; `index`: where data lies in the other files",
    ]
    rank: Annotated[
        int | None,
        "the rank that wrote it, if several do; only this rank reads its `replica` and `own`",
    ] = None
    bytes: int
    checksum: Annotated[
        str | None, "its checksum, if the strategy computed it from memory while it wrote"
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """A part of the start of an attempt has ended."""

    moment: ClassVar = "when the part ends; the first event of an attempt is `launch`"
    name: Annotated[
        str,
        "`launch`, until the rank's `main` (between hosts by wall clocks); `meet`, all ranks report to the launcher; `import` of the framework; `join`, ranks connect; `data`; `build`, network and optimizer; after a restart from a checkpoint also `evict` (cells with `cache: cold`), `load` and `first_step`",
    ]
    start_ns: Ns
    end_ns: Ns
    resident_bytes: Annotated[int | None, "for `evict`: bytes that stayed in the page cache"] = None
    read_bytes: Annotated[
        int | None,
        "for `load`: bytes read from storage, counted by the kernel",
    ] = None
    bytes: Annotated[int | None, "for `load`: size of the files read by this rank"] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """The rank is connected to the other ranks."""

    moment: ClassVar = (
        "after `join`; `monotonic_ns` and `unix_ns` relate the clock to the time of day"
    )
    attempt: Annotated[int, "from 1"]
    rank: int
    world_size: int
    host: Annotated[str, "its name in the scheduler"]
    pid: int
    device: Annotated[str, "`cpu`, or the model of the GPU"]
    monotonic_ns: Ns
    unix_ns: Annotated[int, "ns since 1970, at the same moment as `monotonic_ns`"]
    versions: Annotated[
        dict[str, str],
        "as in `manifest.json`; also `ckptbench's copy`: `native` or `numpy`; and `GLIBC_TUNABLES`",
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """The size of the state that a checkpoint must hold."""

    moment: ClassVar = "after `build`"
    parameters: Annotated[int, "number of parameters of the network"]
    model: Annotated[int, "bytes of the parameters"]
    optimizer: Annotated[int, "bytes of the optimizer's slots"]
    second_moments: Annotated[int, "bytes of the second moments among these slots"]
    rest: Annotated[int, "bytes of this rank's own state, running statistics included"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Steps:
    """A block of consecutive steps. Every list has one element for each step."""

    moment: ClassVar = "after each epoch and before each save, outside all measured times; in a run with failures after each step"
    epoch: EpochNumber
    first_step: Annotated[int, "index in the run of the block's first step, from 0"]
    start_ns: Annotated[list[int], "ns"]
    end_ns: Annotated[list[int], "ns"]
    loss: Annotated[list[float], "mean cross-entropy of the rank's batch before the update"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause:
    """Training paused for a measurement. The pause is not part of the epoch's time."""

    moment: ClassVar = "before and after each save"
    step: Step
    start_ns: Ns
    end_ns: Annotated[
        int, "ns; before a save with `training.proof`: when all ranks had recorded their state"
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """Memory, threads and processes of the rank and all its descendants."""

    moment: ClassVar = "at the moments that `when` names"
    when: Annotated[
        MemoryMoment,
        "`before` and `saved`: around each save; `written` and `durable`: of a background save; `epoch`: after each epoch; `closed`: after training",
    ]
    step: Annotated[
        int, "completed steps of the whole run; for `written` and `durable` those of the save"
    ]
    at_ns: Ns
    bytes: Annotated[
        int, "resident anonymous memory of all of them, with shared memory counted once"
    ]
    shared_bytes: Annotated[int, "shared memory among these"]
    peak_bytes: Annotated[
        int,
        "maximum of `bytes` since the start of the epoch or the last save; descendants count with their current value",
    ]
    threads: Annotated[int, "threads of all of them"]
    processes: Annotated[int, "number of descendants"]
    gpu_peak_bytes: Annotated[
        int | None,
        "for `epoch` on a GPU: maximum of its memory that the framework has allocated in this process; only PyTorch reports it",
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Save:
    """A save blocked the training loop."""

    moment: ClassVar = "after each save"
    step: Step
    epoch: EpochNumber
    start_ns: Ns
    end_ns: Ns


@dataclass(frozen=True, slots=True, kw_only=True)
class Hold:
    """The training loop waited for a background save, or for the removal of old versions after it."""

    moment: ClassVar = "after each such wait"
    step: Annotated[int, "step of that save"]
    why: Annotated[
        Literal["update", "save", "removal", "end"],
        "`update`: the update waited for the capture; `save`: the next save waited for this one; `removal`: wait for the removal of old versions; `end`: wait after training",
    ]
    start_ns: Ns
    end_ns: Ns


@dataclass(frozen=True, slots=True, kw_only=True)
class Captured:
    """The save has copied or written the state, so training may change it."""

    moment: ClassVar = "once for each save"
    step: Step
    at_ns: Ns


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """This rank's files of a version are in the staging folder, perhaps not yet on stable storage."""

    moment: ClassVar = "once for each save and level"
    step: Step
    level: Annotated[str, "where the version lies: `memory`, `node` or `shared`"]
    at_ns: Ns
    files: Annotated[list[File], "each with `name`, `kind`, `rank` and `bytes`"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Durable:
    """A complete version, with its manifest, is on stable storage."""

    moment: ClassVar = (
        "once for each save and level, by the committing rank; on several nodes by one rank of each"
    )
    step: Step
    level: str
    synced_ns: Annotated[int, "ns, when the files of all ranks were on stable storage"]
    checked_ns: Annotated[
        int, "ns, when their checksums were known and the manifest was on stable storage"
    ]
    committed_ns: Annotated[int, "ns, when the renamed folder was on stable storage"]
    files: Annotated[
        list[File],
        "those of all ranks; on several nodes those of the node, and its copies",
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Retained:
    """Old versions were removed in the background."""

    moment: ClassVar = "after each removal, by the committing rank"
    step: Annotated[int, "step of the version committed just before"]
    start_ns: Ns
    end_ns: Ns


@dataclass(frozen=True, slots=True, kw_only=True)
class SaveFailed:
    """A save failed, and the run ends with an error."""

    moment: ClassVar = "instead of the events that would have followed"
    step: Step
    at_ns: Ns
    error: Annotated[str, "its type and message"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Epoch:
    """The steps and checkpoints of an epoch have ended. Its time includes pauses, but not the evaluation that follows."""

    moment: ClassVar = "after each epoch, and before a save at its end, so that a restart from there need not record it; the later event counts"
    epoch: EpochNumber
    start_ns: Ns
    end_ns: Ns
    samples: Annotated[int, "number of this rank's training samples"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """The network was evaluated on this rank's shard of the test set."""

    moment: ClassVar = "after each epoch, unless the shard is empty"
    epoch: EpochNumber
    start_ns: Ns
    end_ns: Ns
    samples: Annotated[int, "number in the shard"]
    loss_sum: Annotated[float, "sum of their cross-entropies"]
    correct: Annotated[int, "samples classified correctly"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """The attempt stopped at the launcher's request. Its last checkpoint is durable."""

    moment: ClassVar = "as the last event, instead of `end`"
    step: Step


@dataclass(frozen=True, slots=True, kw_only=True)
class Digest:
    """A digest of every tensor's bits: sixteen hexadecimal digits."""

    moment: ClassVar = "at the moments that `when` names"
    step: Step
    epoch: EpochNumber
    when: Annotated[
        str,
        "`end`: after the last epoch, in every run. With `training.proof` also `epoch`: after each epoch; `saved`: before each save; `loaded` and `stepped`: after a restart's load and first step; `version`: after training, of each remaining version as loaded by its strategy",
    ]
    level: Annotated[str | None, "for `version`: where it lies"] = None
    tensors: Annotated[dict[str, str], "digests of the tensors of model and optimizer, by name"]
    rank_state: Annotated[
        dict[str, str],
        "digests of this rank's own state and of `position/data` (epoch and step of the next sample), by name; empty without `training.proof`",
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Begun:
    """The first step of the run begins. Failure times count from here."""

    moment: ClassVar = "in an injector's journal, once per run"
    monotonic_ns: Ns
    unix_ns: Annotated[int, "ns since 1970, at the same moment as `monotonic_ns`"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Strike:
    """A failure is about to be injected."""

    moment: ClassVar = "in an injector's journal, just before"
    failure: Annotated[int, "its number in the plan's `failures`, from 0"]
    kind: Annotated[str, "`kill`, `hang` or `damage`"]
    attempt: Annotated[int, "the affected attempt, from 1"]
    monotonic_ns: Ns
    unix_ns: Annotated[int, "ns since 1970, at the same moment as `monotonic_ns`"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Struck:
    """A failure was injected: its victims have ended or continue."""

    moment: ClassVar = "in an injector's journal, afterwards"
    failure: int
    monotonic_ns: Ns
    unix_ns: Annotated[int, "ns since 1970, at the same moment as `monotonic_ns`"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Unfired:
    """Training is over. Lists the failures of this rank that never fired."""

    moment: ClassVar = "in an injector's journal, at the end of the last attempt"
    ahead: Annotated[list[int], "numbers of failures whose time had not come"]
    missed: Annotated[list[int], "numbers of failures whose step, save or recovery never came"]
    monotonic_ns: Ns


@dataclass(frozen=True, slots=True, kw_only=True)
class Membership:
    """From the next step on this rank trains with these ranks (before the first such event with all ranks)."""

    moment: ClassVar = "when others continue after a loss of ranks, and when new ranks have joined"
    step: Step
    ranks: Annotated[list[int], "their numbers in the run; the first takes the role of rank 0"]
    first: Annotated[
        list[int],
        "for each rank its first sample in the step's global batch, from 0",
    ]
    samples: Annotated[list[int], "for each rank its number of samples per step"]
    monotonic_ns: Ns


@dataclass(frozen=True, slots=True, kw_only=True)
class Regroup:
    """Other ranks were lost or have joined, and this rank continues."""

    moment: ClassVar = "when the rank is ready to continue; after `membership`"
    step: Annotated[int, "completed steps of the whole run at which it continues"]
    reached: Annotated[
        int,
        "steps that this rank had completed before",
    ]
    noticed_ns: Annotated[
        int,
        "ns, when its step failed, when it learned of joining ranks, or when it was ready to join",
    ]
    agreed_ns: Annotated[int, "ns, when the ranks had agreed on members and step"]
    ready_ns: Annotated[int, "ns, when it had the state of that step"]
    bytes: Annotated[int, "bytes of the state that it received; 0: it already had the state"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Lost:
    """The launcher noticed a loss of ranks."""

    moment: ClassVar = "in the launcher's trace"
    attempt: Annotated[int, "attempt with the loss, from 1"]
    ranks: Annotated[list[int], "as far as known"]
    how: Annotated[str, "the first line of the error"]
    unix_ns: Annotated[int, "ns since 1970"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AllEnded:
    """All processes of an attempt with a loss have ended."""

    moment: ClassVar = "in the launcher's trace"
    attempt: int
    unix_ns: Annotated[int, "ns since 1970"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """The launcher has chosen the version from which the next attempt continues."""

    moment: ClassVar = "in the launcher's trace, just before the next attempt"
    attempt: Annotated[int, "the next one"]
    step: Annotated[int, "completed steps of that version; 0: from the beginning"]
    since_unix_ns: Annotated[
        int | None,
        "ns since 1970, when the choice began",
    ] = None
    unix_ns: Annotated[int, "ns since 1970"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    """Counters of the launcher's machine. The difference of two shows the load by others during an attempt."""

    moment: ClassVar = "in the launcher's trace, just before and after an attempt"
    attempt: int
    when: Annotated[Literal["begin", "end"], "of the attempt"]
    at_ns: Ns
    cores: Annotated[int, "cores of the machine that were online"]
    busy_s: Annotated[float, "CPU time of all processes and kernel threads, without interrupts"]
    own_s: Annotated[
        float | None,
        "the part used by the launcher and its descendants; missing if ranks also run on other nodes",
    ] = None
    kernel_s: Annotated[
        float | None,
        "the part used by kernel threads; missing in a container that hides them",
    ] = None
    stolen_s: Annotated[
        float | None,
        "time that the host withheld from a virtual machine",
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """The rank ended without an error."""

    moment: ClassVar = "as the last event"
    monotonic_ns: Ns


Event = (
    Phase | Start | State | Steps | Pause | Memory | Save | Hold | Captured | Written | Durable | Retained | SaveFailed
    | Epoch | Evaluation | Stop | Digest | End | Begun | Strike | Struck | Unfired | Lost | AllEnded | Chosen
    | Membership | Regroup | Counted
)  # fmt: skip


def name_of(kind: type[Any]) -> str:
    """The name of an event in a trace: `save_failed` for SaveFailed."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", kind.__name__).lower()


KINDS: dict[str, type[Any]] = {name_of(kind): kind for kind in get_args(Event)}
KINDS["rested"] = Unfired  # what version 0.1 wrote
_NAMES = {kind: name_of(kind) for kind in get_args(Event)}
_FIELDS = {kind: [field.name for field in dataclasses.fields(kind)] for kind in _NAMES}


def to_json(event: Event) -> dict[str, Any]:
    """The event as the JSON object of its line in a trace."""
    kind = type(event)
    line: dict[str, Any] = {"event": _NAMES[kind]}
    for name in _FIELDS[kind]:
        value = getattr(event, name)
        if value is not None:
            line[name] = value
    if isinstance(event, Written | Durable):
        line["files"] = [_file_to_json(file) for file in event.files]
    return line


def from_json(line: dict[str, Any]) -> Event:
    """The event of a line, without fields that only other versions have.

    Raises KeyError, TypeError or ValueError if the line is not an event.
    """
    kind = KINDS[line["event"]]
    check(line, kind)
    fields = {name: line[name] for name in _FIELDS[kind] if name in line}
    if "files" in fields:
        fields["files"] = [File(**file) for file in fields["files"]]
    event: Event = kind(**fields)
    return event


def _file_to_json(file: File) -> dict[str, Any]:
    return {key: value for key, value in dataclasses.asdict(file).items() if value is not None}
