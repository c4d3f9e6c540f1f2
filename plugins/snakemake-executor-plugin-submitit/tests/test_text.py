"""Text of a user on its way into a job: every printable character comes through, or is refused by its name."""

import re
import shlex
import string
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fakes import SnakemakeJob
from snakemake_interface_common.exceptions import WorkflowError
from snakemake_interface_executor_plugins.executors.remote import RemoteExecutor
from snakemake_interface_executor_plugins.settings import SharedFSUsage
from snakemake_interface_executor_plugins.utils import format_cli_arg

from snakemake_executor_plugin_submitit import clusters, command
from snakemake_executor_plugin_submitit.executor import Executor
from snakemake_executor_plugin_submitit.resources import Allocation
from snakemake_executor_plugin_submitit.settings import ExecutorSettings

PRINTABLE = "".join(sorted({*string.printable} - {*string.whitespace})) + " é学😀"
CONTROL = "\n\r\t\v\f\x00\x07\x1b\x85\u2028\u2029"
SCHEDULERS = ("slurm", "gridengine", "pbs")


def text(folder: Path | str, settings: ExecutorSettings, **resources: object) -> str:
    allocation = Allocation.of(SnakemakeJob(resources=resources), settings)  # type: ignore[arg-type]
    executor = clusters.cluster(settings).executor(Path(folder), allocation)
    made: str = executor._make_submission_file_text(executor._submitit_command_str, "0")
    return made


def outputs(script: str) -> list[str]:
    """What Slurm reads for --output and --error; its quotes are those of the shell."""
    return [shlex.split(each)[0] for each in re.findall(r"^#SBATCH --(?:output|error)=(.*)$", script, re.MULTILINE)]  # fmt: skip


@pytest.mark.parametrize("character", sorted({*PRINTABLE} - {*"\\/"}))
def test_slurm_writes_logs_to_a_folder_with_any_other_character(character: str):
    script = text(f"/shared/9{character}x", ExecutorSettings(cluster="slurm"))
    folder = f"/shared/9{character}x".replace("%", "%%")
    assert outputs(script) == [f"{folder}/%j_0_log.err", f"{folder}/%j_0_log.out"]
    assert script.rstrip().endswith(shlex.quote(f"/shared/9{character}x"))


@pytest.mark.parametrize("character", "\\" + CONTROL)
def test_slurm_is_given_no_folder_that_it_cannot_name(character: str):
    with pytest.raises(WorkflowError, match="train: the folder is ") as refused:
        text(f"/shared/9{character}x", ExecutorSettings(cluster="slurm"))
    assert repr(f"9{character}x").strip("'") in str(refused.value)
    assert len(str(refused.value).splitlines()) == 1


@pytest.mark.parametrize("cluster", SCHEDULERS)
@pytest.mark.parametrize("field", ["account", "queue"])
def test_no_account_or_queue_begins_another_line(cluster: str, field: str):
    for character in CONTROL:
        asked = f"a{character}#SBATCH --output=/elsewhere"
        with pytest.raises(WorkflowError) as of_setting:
            text("/shared/jobs", ExecutorSettings(cluster=cluster, **{field: asked}))
        with pytest.raises(WorkflowError) as of_resource:
            text("/shared/jobs", ExecutorSettings(cluster=cluster), **{field: asked})
        assert repr(character) in str(of_setting.value)
        assert str(of_setting.value) == str(of_resource.value)
        assert len(str(of_setting.value).splitlines()) == 1


@pytest.mark.parametrize("character", CONTROL)
def test_no_option_of_sbatch_begins_another_line(character: str):
    for option in (f"comment=a{character}b", f"constraint=a{character}b"):
        with pytest.raises(WorkflowError, match=f"{option.partition('=')[0]} is ") as refused:
            text("/shared/jobs", ExecutorSettings(cluster="slurm", options=[option]))
        assert len(str(refused.value).splitlines()) == 1


@pytest.mark.parametrize("character", PRINTABLE)
def test_a_value_of_sbatch_comes_through_whole(character: str):
    settings = ExecutorSettings(cluster="slurm", options=[f"comment=a{character}b"])
    lines = text("/shared/jobs", settings).splitlines()
    given = [line.partition("=")[2] for line in lines if line.startswith("#SBATCH --comment=")]
    assert [shlex.split(each) for each in given] == [[f"a{character}b"]]


@pytest.mark.parametrize("cluster", SCHEDULERS)
@pytest.mark.parametrize("key", ["a\nb", "a b", "-x", "a'b", "é", "a#b"])
def test_the_name_of_an_option_is_a_word(cluster: str, key: str):
    settings = ExecutorSettings(cluster=cluster, options=[f"{key}=1"])
    with pytest.raises(WorkflowError, match="is not of the form key=value") as refused:
        settings.check()
    assert len(str(refused.value).splitlines()) == 1


@pytest.mark.parametrize("cluster", SCHEDULERS)
@pytest.mark.parametrize("name", ["100%joint", "50%a b", "%t", "x%A"])
def test_a_folder_in_which_submitit_would_put_ids_is_refused(
    tmp_path: Path, cluster: str, name: str
):
    with pytest.raises(
        WorkflowError, match=r"--submitit-folder is .* replaces %[jaAt] by"
    ) as refused:
        text(tmp_path / name, ExecutorSettings(cluster=cluster))
    assert len(str(refused.value).splitlines()) == 1
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("cluster", ["gridengine", "pbs"])
def test_what_a_plugin_of_submitit_refuses_names_the_job(cluster: str):
    with pytest.raises(WorkflowError, match=r"train: the folder is '/shared/a\"b"):
        text('/shared/a"b', ExecutorSettings(cluster=cluster))


def shell(words: str) -> list[str]:
    """The words as the shell of a job reads them; none where it cannot."""
    script = f"printf '%s\\0' {words}"
    printed = subprocess.run(["bash", "-c", script], capture_output=True, check=False).stdout
    return printed.decode().split("\0")[:-1]


ODD = [*(f"a{character}b" for character in PRINTABLE + CONTROL if character not in "/\0"), "a'$HOME", "a'`b`", "a'\"b"]  # fmt: skip


@pytest.mark.parametrize("name", ODD)
def test_an_argument_that_the_shell_of_a_job_reads_otherwise_is_refused(name: str):
    if shell(format_cli_arg("--at", f"/x/{name}")) == ["--at", f"/x/{name}"] and "\\" not in repr(
        name
    ):
        command.check_argument(f"/x/{name}", "the folder")
        return
    with pytest.raises(WorkflowError, match="the folder is ") as refused:
        command.check_argument(f"/x/{name}", "the folder")
    assert len(str(refused.value).splitlines()) == 1


@pytest.mark.parametrize("name", ODD)
def test_the_snakefile_and_the_python_of_a_job_may_lie_anywhere(
    name: str, monkeypatch: pytest.MonkeyPatch
):
    executor: Any = object.__new__(Executor)
    executor.snakefile = f"/x/{name}/Snakefile"
    executor.workflow = SimpleNamespace(
        storage_settings=SimpleNamespace(shared_fs_usage=SharedFSUsage.all())
    )
    monkeypatch.setattr("sys.executable", f"/x/{name}/python")
    words = f"{executor.get_python_executable()} {format_cli_arg('--snakefile', executor.get_snakefile())}"
    assert shell(words) == [f"/x/{name}/python", "--snakefile", f"/x/{name}/Snakefile"]


@pytest.mark.parametrize("count", [1, 21])
def test_inputs_of_a_job_may_have_any_name(
    count: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    files = [f"{number} {name}" for name in ODD if "\0" not in name and "\n" not in name for number in range(count)]  # fmt: skip
    monkeypatch.setattr(RemoteExecutor.__base__, "get_job_args", lambda *asked, **further: "args")
    executor: Any = object.__new__(Executor)
    executor.workflow = SimpleNamespace(storage_settings=SimpleNamespace(shared_fs_usage=SharedFSUsage.all()))  # fmt: skip
    executor._folder = tmp_path
    job = SimpleNamespace(get_wait_for_files=lambda: files[:20] if count == 1 else files)
    words = shell(executor.get_job_args(job))
    if count == 1:
        assert words == ["args", "--wait-for-files", *files[:20]]
    else:
        assert words[:2] == ["args", "--wait-for-files-file"]
        assert Path(words[2]).read_bytes().decode().split("\n") == [*files, ""]
