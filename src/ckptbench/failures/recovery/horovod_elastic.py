"""The recovery `horovod_elastic`: Horovod's `horovodrun` starts the ranks and, after a while, a new one in place of a lost one.

All ranks are on one node. Survivors go back to the state that every rank copies in memory after every `commit_steps` steps.
With three ranks or more a survivor may hear of a loss only after
`timeout_s`; a rank that waits longer than that in `init` is ended, and all start from the newest checkpoint. `horovodrun`
ends its ranks on SIGTERM, so a run that a scheduler stops saves no last checkpoint.
"""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NoReturn

from ckptbench.common.clock import clock
from ckptbench.common.errors import LaunchError
from ckptbench.common.shared_memory import PYTHON, named_segments, remove_unused
from ckptbench.failures.recovery.contract import Loss, Regrouped, Verdict
from ckptbench.failures.recovery.elastic import Elastic, ElasticRank
from ckptbench.frameworks.contract import Arrays, Framework
from ckptbench.frameworks.horovod.ranks import OverHorovod
from ckptbench.matrix.plugin_spec import Option
from ckptbench.runs.events import Membership, Phase
from ckptbench.runs.layout import trace_path
from ckptbench.runs.plan import Plan
from ckptbench.runs.position import Position
from ckptbench.runs.trace import whole_events
from ckptbench.world.link import Link
from ckptbench.world.ranks import RankContext
from ckptbench.world.variables import RANK, STARTED

log = logging.getLogger(__name__)

HOST = "127.0.0.{}1"
"""The rank's host, as Horovod sees it, with as many zeros as its number says. All of these are this host's 127.0.0.1.

Horovod bars the whole host of a lost rank, so each rank needs one of its own; and where a name stands for no address of an
interface here, it would start the rank by ssh.
"""
NUMBERED = (
    f"export {RANK}=$((${{#HOROVOD_HOSTNAME}} - {len(HOST.format(''))})); "
    f'read {STARTED} _ < /proc/uptime; export {STARTED}; exec "$@"'
)
"""A line of shell that starts the command behind it as the rank of its host, whatever number Horovod gives it."""
BARRED_S = ("2", "3")
"""How long the host of a lost rank gets no new one, at least and at most, in seconds."""
WAIT_S = "300"
"""How long `horovodrun` waits for hosts, in seconds."""
UNKNOWN = -1
"""The step of a rank that has no state yet."""


class HorovodElastic(Elastic):
    """The half that the launcher calls."""

    def __init__(self) -> None:
        super().__init__()
        self._missing: dict[int, _Progress] = {}
        """How far each rank was when it was lost, of those that do not train again yet."""

    def command(self, rank: Sequence[str], plan: Plan) -> list[str]:
        ranks = plan.cell.ranks
        hosts = "".join(f"{HOST.format('0' * each)}:1\\n" for each in range(ranks))
        return [
            rank[0], "-m", "horovod.runner.launch",  # the script `horovodrun` names the folder in which it was installed
            "--gloo", "--network-interfaces", "lo",
            "-np", str(ranks), "--min-np", "1", "--max-np", str(ranks),
            "--host-discovery-script", f"printf '{hosts}'",
            "--blacklist-cooldown-range", *BARRED_S,
            "--start-timeout", WAIT_S, "--elastic-timeout", WAIT_S,
            "sh", "-c", NUMBERED, "sh", *rank,
        ]  # fmt: skip

    @contextmanager
    def environment(self) -> Iterator[Mapping[str, str]]:
        """Horovod's order of ranks is that of a set of names: it is made the same in every run.

        `horovodrun` leaves semaphores behind where it is killed, as when it does not end in time. They are removed here.
        """
        before = named_segments(PYTHON)
        try:
            yield {"PYTHONHASHSEED": "0"}
        finally:
            remove_unused(named_segments(PYTHON) - before)

    def after(self, loss: Loss, plan: Plan) -> Verdict:
        """The survivors go on. But Horovod's `init` ends a rank that waits in it too long, or for one that has died."""
        now = {rank: _Progress.of(plan, rank) for rank in range(plan.cell.ranks)}
        for rank, lost_at in list(self._missing.items()):
            if now[rank].is_back(lost_at):
                del self._missing[rank]
        some_were_missing = bool(self._missing)
        verdict = super().after(loss, plan)
        if verdict is Verdict.GIVE_UP and loss.ranks and some_were_missing:
            log.info("the ranks that were left could not meet: %s", loss.how)
            verdict = Verdict.RELAUNCH
        if verdict is Verdict.GO_ON:
            self._missing |= {rank: now[rank] for rank in loss.ranks}
            if len(self._missing) == plan.cell.ranks:
                log.info("every rank that had a state is lost")
                verdict = Verdict.RELAUNCH
            elif not all(now[rank].has_met for rank in loss.ranks):
                log.info("a rank was lost before the others had met it")
                verdict = Verdict.RELAUNCH
        if verdict is Verdict.RELAUNCH:
            self._missing.clear()
        return verdict


@dataclass(frozen=True, slots=True)
class _Progress:
    """How far a rank has come, from its trace."""

    processes: int
    """Those that have come up in its place."""
    has_met: bool
    """Whether the last one has met the others."""
    has_regrouped: bool
    """Whether the last one has agreed with the others on a step to go on from."""

    @classmethod
    def of(cls, plan: Plan, rank: int) -> _Progress:
        processes, has_met, has_regrouped = 0, False, False
        for event in whole_events(trace_path(plan.run_folder, rank)):
            match event:
                case Phase(name="launch"):
                    processes, has_met, has_regrouped = processes + 1, False, False
                case Phase(name="join"):
                    has_met = True
                case Membership():
                    has_regrouped = True
        return cls(processes, has_met, has_regrouped)

    def is_back(self, lost_at: _Progress) -> bool:
        """Whether another process has come since, and trains with the others."""
        return self.processes > lost_at.processes and self.has_regrouped


class HorovodElasticRank(ElasticRank):
    """The half that every rank calls.

    Horovod does what it does for its own users: its elastic state (`TorchState`, and for TensorFlow an `ObjectState` of
    variables) keeps what was committed last, its `init` asks `horovodrun` for the ranks that there are, and its notifications
    tell of new ones. Only the loop around them, `run_fn` of horovod.common.elastic, is written here once more.
    """

    framework: OverHorovod

    def __init__(self, world: RankContext, link: Link, options: Mapping[str, Option]) -> None:
        super().__init__(world, link, options)
        self._commit_steps = int(options["commit_steps"])
        os.environ["HOROVOD_GLOO_TIMEOUT_SECONDS"] = str(math.ceil(float(options["timeout_s"])))

    def adopt(self, framework: Framework) -> None:
        assert isinstance(framework, OverHorovod)
        super().adopt(framework)

    def join(self, reached: Position) -> Regrouped | None:
        from horovod.common.elastic import notification_manager

        step = UNKNOWN if self.link.comes_again else reached.step
        self._state = self.framework.elastic_state(step=step)
        self._keep_own()
        notification_manager.init()
        notification_manager.register_listener(self._state)
        return self._reunite(is_new=True) if self.link.comes_again else None

    def admit(self, reached: Position) -> Regrouped | None:
        """Commit after every so many steps. Horovod tells of new ranks then, and at no other time."""
        from horovod.common.exceptions import HostsUpdatedInterrupt

        every = self._commit_steps
        if not every or reached.step % every or reached.step == self._state.step:
            return None
        self._state.step = reached.step
        self._keep_own()
        try:
            self._state.commit()
        except HostsUpdatedInterrupt:
            log.info("new ranks can join after step %d", reached.step)
            return self._reunite()
        return None

    def regroup(self, error: Exception, reached: Position) -> Regrouped:
        """Go back to what was committed last, and on with those that Horovod still has.

        They go on after the last commit of Horovod's first rank, the one that has been there longest: it sends its state,
        running statistics too. Random states are each rank's own.
        """
        if not self._tells_of_a_loss(error):
            raise error
        log.info("a rank is lost after step %d: %s", reached.step, _first_line(error))
        self._state.restore()
        return self._reunite()

    def finish(self) -> None:
        """Without a rank that is lost in the last evaluation the others evaluate anew, its share too."""
        self.framework.barrier()

    def close(self) -> None:
        """Wait for the others, without whom a rank that ends would be taken for a lost one."""
        try:
            self.framework.close()
        except Exception as error:
            if not self._tells_of_a_loss(error):
                raise
            log.info("a rank was lost at the end: %s", _first_line(error))

    def abort(self) -> NoReturn:
        """End this process. At Python's end Horovod might wait for the others."""
        self.leave(1)

    def _reunite(self, *, is_new: bool = False) -> Regrouped:
        """Meet those that Horovod has now, and take over the state of its first rank."""
        noticed_ns = clock()
        horovod = self.framework.horovod
        while True:
            try:
                if not is_new:
                    horovod.shutdown()
                    horovod.init()
                    self._state.on_reset()
                known = horovod.allgather_object((self.world.rank, self._state.step), name="known")
                agreed_ns = clock()
                (first, step), own = known[0], self._state.step
                if step == UNKNOWN:
                    raise LaunchError("every rank that had a state is lost")
                self._state.sync()
                break
            except Exception as error:
                if not self._tells_of_a_loss(error):
                    raise
                log.info("another rank is lost: %s", _first_line(error))
                is_new = False
                self._state.restore()
        self._state.save()
        if own == step:
            self.framework.load_rank_state({**self.framework.rank_state(), **self._own})
        self._keep_own()
        taken = 0 if first == self.world.rank else self._bytes()
        return Regrouped(
            step=step,
            ranks=tuple(sorted(rank for rank, _ in known)),
            noticed_ns=noticed_ns,
            agreed_ns=agreed_ns,
            ready_ns=clock(),
            bytes=taken,
        )

    def _keep_own(self) -> None:
        """Keep what is this rank's own and Horovod's state leaves out: the states of its random generators."""
        state = self.framework.rank_state()
        self._own: Arrays = {
            name: array for name, array in state.items() if not name.startswith("buffer/")
        }

    def _bytes(self) -> int:
        return sum(tensor.nbytes for tensor in self.framework.state())

    def _tells_of_a_loss(self, error: BaseException | None) -> bool:
        if error is None:
            return False
        return self.framework.tells_of_a_loss(error) or self._tells_of_a_loss(error.__cause__)


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
