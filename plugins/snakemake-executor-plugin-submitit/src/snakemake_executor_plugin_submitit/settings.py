"""The plugin's settings, which Snakemake offers as `--submitit-...` options."""

import json
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, List, Optional  # noqa: UP035 (Snakemake reads the fields' types)

from snakemake_interface_common.exceptions import WorkflowError
from snakemake_interface_executor_plugins.settings import ExecutorSettingsBase

KEY = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")
CLUSTERS = ("slurm", "gridengine", "pbs")


def _about(words: str, **more: Any) -> dict[str, Any]:
    """What Snakemake wants to know of an option."""
    return {"help": words, "env_var": True, "required": False, **more}


@dataclass
class ExecutorSettings(ExecutorSettingsBase):
    """One field an option; Snakemake needs `Optional` and `List` here, not `|` and `list`."""

    cluster: Optional[str] = field(  # noqa: UP045
        default=None,
        metadata=_about("Where jobs go.", choices=list(CLUSTERS), required=True),
    )
    account: Optional[str] = field(  # noqa: UP045
        default=None,
        metadata=_about("Account, project or group that is charged (resource: account)."),
    )
    queue: Optional[str] = field(  # noqa: UP045
        default=None, metadata=_about("Partition or queue (resource: queue).")
    )
    require_account: bool = field(
        default=False,
        metadata=_about("Refuse to submit anything while a job has no account.", env_var=False),
    )
    tasks_per_node: Optional[int] = field(  # noqa: UP045
        default=None,
        metadata=_about(
            "Tasks that fit on a node: from it and the resource tasks follows the number of nodes. "
            "Default: all tasks of a job on one node."
        ),
    )
    folder: str = field(
        default=".snakemake/submitit",
        metadata=_about("Folder of submission files, results and logs; every node must see it."),
    )
    max_requeues: int = field(
        default=3,
        metadata=_about(
            "How often a job that was stopped by its time limit goes back to the queue."
        ),
    )
    stop_seconds: int = field(
        default=120,
        metadata=_about(
            "How long before its time limit a job is asked to stop; never more than a fifth of its "
            "runtime."
        ),
    )
    array_size: int = field(
        default=1000, metadata=_about("Most jobs in one array; 1 submits every job by itself.")
    )
    options: List[str] = field(  # noqa: UP006
        default_factory=list,
        metadata=_about(
            "Further parameters of submitit's executor for this cluster, without its prefix; on Slurm "
            "any long option of sbatch as well. A value that is valid JSON is read as JSON.",
            nargs="+",
            metavar="KEY=VALUE",
            env_var=False,
        ),
    )
    dry_run: bool = field(
        default=False,
        metadata=_about(
            "Print the submission command and file of every job that would be submitted, and submit "
            "nothing. Needs no scheduler.",
            env_var=False,
        ),
    )

    def check(self) -> None:
        """Raises WorkflowError for a value that no job could be submitted with."""
        if self.cluster not in CLUSTERS:
            raise WorkflowError(
                f"--submitit-cluster is {self.cluster}: use one of {', '.join(CLUSTERS)}."
            )
        for name, least in (
            ("tasks_per_node", 1),
            ("max_requeues", 0),
            ("stop_seconds", 1),
            ("array_size", 1),
        ):
            value = getattr(self, name)
            if value is not None and value < least:
                raise WorkflowError(
                    f"--submitit-{name.replace('_', '-')} is {value}: use a whole number "
                    f"from {least}."
                )
        parse_options(self.options, "--submitit-options")
        check_once(self.options, "--submitit-options")


def parse_options(pairs: Iterable[str], source: str) -> dict[str, Any]:
    """`key=value` pairs as a mapping; `source` names in the error where they were written."""
    options = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not (KEY.fullmatch(key.strip()) and equals):
            raise WorkflowError(
                f"{source}: {pair!r} is not of the form key=value, with a key of letters, digits and -."
            )
        options[key.strip().replace("-", "_")] = read_value(value)
    return options


def check_once(pairs: Iterable[str], source: str) -> None:
    """Raises WorkflowError where one place gives an option twice: only the last would count."""
    keys = Counter(pair.partition("=")[0].strip().replace("-", "_") for pair in pairs)
    if twice := [key for key, count in keys.items() if count > 1]:
        raise WorkflowError(
            f"{source}: {', '.join(twice)} is given twice, and only the last would count. For several values write one "
            """list, as extra='["-v A=1", "-p 3"]'."""
        )


def read_value(text: str) -> Any:
    """As JSON where that is what was written: 3, true, a list. A name that looks like a number (1e3) stays text."""
    try:
        value = json.loads(text)
    except json.JSONDecodeError:
        return text
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return text if is_number and str(value) != text.strip() else value
