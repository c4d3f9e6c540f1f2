"""The events of a trace, in which a rank records its work. Each kind of event is a frozen dataclass.

A trace is a file in which every line is a JSON object: the event's name under `event`, and its fields beside it.
`docs/run-folder.md` has the fields of each from here (`make generated`).

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
        "`state`: model and optimizer; `replica`: all of model and optimizer, which each rank writes for itself; `own`: the "
        "state that only one rank has; `index`: the places of the other files",
    ]
    rank: Annotated[
        int | None,
        "the rank that wrote it, where several do; of a `replica` and of `own` no other rank reads it",
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
        "`launch`, to the rank's `main` (between hosts by wall clocks); `meet`, all ranks report to the launcher; `import` of the framework; `join`, its ranks connect; `data`; `build`, network and optimizer; of an attempt that goes on from a checkpoint also `evict` (cells with `cache: cold`), `load` and `first_step`",
    ]
    start_ns: Ns
    end_ns: Ns
    resident_bytes: Annotated[int | None, "for `evict`: bytes that stayed in the page cache"] = None
    read_bytes: Annotated[
        int | None,
        "for `load`: bytes that came from storage, as the kernel counts",
    ] = None
    bytes: Annotated[int | None, "for `load`: size of the files that this rank read"] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """The rank is connected to the other ranks."""

    moment: ClassVar = (
        "after `join`; `monotonic_ns` and `unix_ns` relate the clock to the time of day"
    )
    attempt: Annotated[int, "from 1"]
    rank: int
    world_size: int
    host: Annotated[str, "by the scheduler's name"]
    pid: int
    device: Annotated[str, "`cpu`, or the model of the GPU"]
    monotonic_ns: Ns
    unix_ns: Annotated[int, "ns since 1970, at the same moment as `monotonic_ns`"]
    versions: Annotated[
        dict[str, str],
        "version of every installed distribution, by name; `ckptbench's copy`: `native` or `numpy`; and `GLIBC_TUNABLES`",
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """The size of the state that a checkpoint must hold."""

    moment: ClassVar = "after `build`"
    parameters: Annotated[int, "number of parameters of the network"]
    model: Annotated[int, "bytes of the parameters"]
    optimizer: Annotated[int, "bytes of the optimizer's slots"]
    second_moments: Annotated[int, "bytes of those slots that are second moments"]
    rest: Annotated[int, "bytes of the state that only this rank has, running statistics included"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Steps:
    """A block of consecutive steps. Every list has one element for each step."""

    moment: ClassVar = "after each epoch and before each save, outside all measured times; of a run that failures strike after each step"
    epoch: EpochNumber
    first_step: Annotated[int, "index in the run of the block's first step, from 0"]
    start_ns: Annotated[list[int], "ns"]
    end_ns: Annotated[list[int], "ns"]
    loss: Annotated[list[float], "mean cross-entropy of the rank's batch before the update"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause:
    """Training stood still while the study looked at it. This is no part of the epoch's time."""

    moment: ClassVar = "before and after each save"
    step: Step
    start_ns: Ns
    end_ns: Annotated[
        int, "ns; before a save with `training.proof`, when all ranks had recorded their state"
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """The host memory, threads and processes of the rank, with all processes that it has started."""

    moment: ClassVar = "at the moments that `when` names"
    when: Annotated[
        MemoryMoment,
        "`before` and `saved`: around each save; `written` and `durable`: of a save in the background; `epoch`: after each; `closed`: after training",
    ]
    step: Annotated[
        int, "completed steps of the whole run; for `written` and `durable` those of the save"
    ]
    at_ns: Ns
    bytes: Annotated[int, "resident anonymous memory of all of them, and shared memory once"]
    shared_bytes: Annotated[int, "of these, shared memory"]
    peak_bytes: Annotated[
        int,
        "the largest `bytes` since the epoch or the last save began; other processes count as they are now",
    ]
    threads: Annotated[int, "threads of all of them"]
    processes: Annotated[int, "that the rank has started, and that these have"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Save:
    """The training loop was blocked by a save."""

    moment: ClassVar = "after each save"
    step: Step
    epoch: EpochNumber
    start_ns: Ns
    end_ns: Ns


@dataclass(frozen=True, slots=True, kw_only=True)
class Hold:
    """The training loop waited for a save in the background, or for the removal of old versions after it."""

    moment: ClassVar = "after each such wait; without a wait there is no event"
    step: Annotated[int, "step of the save for which the loop waited"]
    why: Annotated[
        Literal["update", "save", "removal", "end"],
        "`update`: the update, for the capture; `save`: the next save, for this one; `removal`: for the removal of old versions; `end`: training was over",
    ]
    start_ns: Ns
    end_ns: Ns


@dataclass(frozen=True, slots=True, kw_only=True)
class Captured:
    """Training may change the state from now on, because the save has copied or written it."""

    moment: ClassVar = "once for each save"
    step: Step
    at_ns: Ns


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """The files of this rank's shard of a version are in the staging folder, but perhaps not yet on stable storage."""

    moment: ClassVar = "once for each save and level"
    step: Step
    level: Annotated[str, "where the version lies: `memory`, `node` or `shared`"]
    at_ns: Ns
    files: Annotated[list[File], "each with `name`, `kind`, `rank` and `bytes`"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Durable:
    """A complete version, with its manifest, is on stable storage."""

    moment: ClassVar = (
        "once for each save and level, by the rank that commits; on several nodes by one of each"
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
    """Old versions were removed behind training."""

    moment: ClassVar = "after each removal, by the rank that commits"
    step: Annotated[int, "step of the version that was committed before"]
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
    """The steps and checkpoints of an epoch have ended; its evaluation follows and is not included. Pauses are."""

    moment: ClassVar = "after each epoch, and before a save at its end, so that a restart from there need not record it: the later event counts"
    epoch: EpochNumber
    start_ns: Ns
    end_ns: Ns
    samples: Annotated[int, "on which this rank trained"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """The network was evaluated on this rank's shard of the test set."""

    moment: ClassVar = "after each epoch, unless the shard is empty"
    epoch: EpochNumber
    start_ns: Ns
    end_ns: Ns
    samples: Annotated[int, "in the shard"]
    loss_sum: Annotated[float, "sum of their cross-entropies"]
    correct: Annotated[int, "samples classified correctly"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """The attempt stopped because the launcher asked for it. Its last checkpoint is durable."""

    moment: ClassVar = "as the last event, instead of `end`"
    step: Step


@dataclass(frozen=True, slots=True, kw_only=True)
class Digest:
    """A digest of every tensor: sixteen hexadecimal digits that stand for its bits."""

    moment: ClassVar = "at the moments that `when` names"
    step: Step
    epoch: EpochNumber
    when: Annotated[
        str,
        "`end`: after the last epoch, in every run. With `training.proof` also `epoch`, after each; `saved`, before each save; `loaded` and `stepped`, after a restart's load and first step; `version`: after training, of each version that is left, as its strategy loads it",
    ]
    level: Annotated[str | None, "for `version`: where it lies"] = None
    tensors: Annotated[dict[str, str], "digests of the tensors of model and optimizer, by name"]
    rank_state: Annotated[
        dict[str, str],
        "digests of this rank's own state, by name, and of `position/data`, the next sample's epoch and step; empty without `training.proof`",
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Begun:
    """The first step of the run begins. The seconds of a trace of failures count from here."""

    moment: ClassVar = "in an injector's journal, once for a run"
    monotonic_ns: Ns
    unix_ns: Annotated[int, "ns since 1970, at the same moment as `monotonic_ns`"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Strike:
    """A failure is about to strike."""

    moment: ClassVar = "in an injector's journal, just before"
    failure: Annotated[int, "its number in the plan's `failures`, from 0"]
    kind: Annotated[str, "`kill`, `hang` or `damage`"]
    attempt: Annotated[int, "that it strikes, from 1"]
    monotonic_ns: Ns
    unix_ns: Annotated[int, "ns since 1970, at the same moment as `monotonic_ns`"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Struck:
    """A failure has struck: its victims are gone, or go on."""

    moment: ClassVar = "in an injector's journal, afterwards"
    failure: int
    monotonic_ns: Ns
    unix_ns: Annotated[int, "ns since 1970, at the same moment as `monotonic_ns`"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Unfired:
    """Training is over, and no failure strikes this rank any more."""

    moment: ClassVar = "in an injector's journal, at the end of the last attempt"
    ahead: Annotated[list[int], "numbers of the failures whose second is still to come"]
    missed: Annotated[list[int], "numbers of those whose step, save or recovery never came"]
    monotonic_ns: Ns


@dataclass(frozen=True, slots=True, kw_only=True)
class Membership:
    """From the next step on this rank trains with these ranks. Before the first such event of an attempt all ranks do."""

    moment: ClassVar = "when ranks were lost and others go on, and when new ones have joined"
    step: Step
    ranks: Annotated[
        list[int], "their numbers in the run; the first one does what rank 0 does at other times"
    ]
    first: Annotated[
        list[int],
        "of each, its first sample in the step's global batch, from 0",
    ]
    samples: Annotated[list[int], "of each, the number of its samples in a step"]
    monotonic_ns: Ns


@dataclass(frozen=True, slots=True, kw_only=True)
class Regroup:
    """Other ranks were lost or have joined, and this rank goes on."""

    moment: ClassVar = "when it is ready to go on; after `membership`"
    step: Annotated[int, "completed steps of the whole run after which it goes on"]
    reached: Annotated[
        int,
        "completed steps of this rank before",
    ]
    noticed_ns: Annotated[
        int,
        "ns, when its step failed, or it knew of ranks that join, or was ready to join",
    ]
    agreed_ns: Annotated[int, "ns, when the ranks had agreed on who goes on and after which step"]
    ready_ns: Annotated[int, "ns, when it had the state of that step"]
    bytes: Annotated[int, "of the state that it took over; 0: it had it"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Lost:
    """The launcher knows that ranks are lost."""

    moment: ClassVar = "in the launcher's trace"
    attempt: Annotated[int, "that had the loss, from 1"]
    ranks: Annotated[list[int], "as far as known"]
    how: Annotated[str, "the first line of the error"]
    unix_ns: Annotated[int, "ns since 1970"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AllEnded:
    """All processes of an attempt that had a loss have ended."""

    moment: ClassVar = "in the launcher's trace"
    attempt: int
    unix_ns: Annotated[int, "ns since 1970"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """The launcher has chosen the version from which the next attempt goes on."""

    moment: ClassVar = "in the launcher's trace, just before the next attempt"
    attempt: Annotated[int, "the next one"]
    step: Annotated[int, "completed steps of that version; 0: from the beginning"]
    since_unix_ns: Annotated[
        int | None,
        "ns since 1970, when it began to choose",
    ] = None
    unix_ns: Annotated[int, "ns since 1970"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    """What the launcher's machine has counted so far. Two of these tell who else used it during an attempt."""

    moment: ClassVar = "in the launcher's trace, just before and after an attempt"
    attempt: int
    when: Annotated[Literal["begin", "end"], "of the attempt"]
    at_ns: Ns
    cores: Annotated[int, "of the machine, that were online"]
    busy_s: Annotated[float, "CPU time of all processes and kernel threads, without interrupts"]
    own_s: Annotated[
        float | None,
        "of this, the launcher and all that it has started; missing if ranks are on other nodes too",
    ] = None
    kernel_s: Annotated[
        float | None,
        "of this, the kernel's threads; missing in a container that hides them",
    ] = None
    stolen_s: Annotated[
        float | None,
        "time that the host of a virtual machine did not give",
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """The rank has ended without an error."""

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
