# Which outputs are made again is decided by content, never by the time of a file: a copy of a study makes nothing again. All
# inputs are `ancient` for that reason, and those that another rule makes are `by_content`. A rule whose outputs are outdated gets
# one more input, a mark that is newer than they are. Snakemake's own records are a cache and decide nothing.
import functools
import re
import time

from snakemake.settings.types import RerunTrigger

from ckptbench.remedies import naming
from ckptbench.study.outdated import Digests, MadeFrom, Product, lines, outdated, shown

MADE_FROM = Path(RUNS).with_name("made_from.json")
MARKS = Path(".snakemake/marks")
AT_START = Digests()


def by_content(rule, given):
    """The input function for paths that other rules make: their time counts only where the outputs are outdated anyway.

    Without it Snakemake would not run this rule after the other."""

    def get_all(wildcards):
        return given(wildcards) if callable(given) else given

    def get(wildcards):
        paths = get_all(wildcards)
        return paths if key_of(rule, wildcards) in get_outdated() else ancient(paths)

    get.all = get_all
    return get


def get_mark(rule):
    """The input function of a rule: the mark of its job if its outputs are outdated."""

    def get(wildcards):
        key = key_of(rule, wildcards)
        return [] if get_outdated().get(key) is None else [str(MARKS / key)]

    get.all = lambda wildcards: []
    return get


def key_of(rule, wildcards):
    return "/".join([rule, *wildcards])


@functools.cache
def get_outdated():
    """Why which outputs are outdated, by `key_of`. None: only what they are made from is made again.

    A job on a cluster was chosen by its workflow."""
    if not workflow.is_main_process:
        return {}
    # Params and code are compared here. Snakemake asks for inputs before it asks for these.
    workflow.dag_settings.rerun_triggers = frozenset([RerunTrigger.MTIME])
    products = find_outdated_products()
    found = {
        **{key: why for rule in OUTDATED for key, why in keyed(rule).items()},
        **products,
    }
    for line in [*lines(found), *get_left_over()]:
        print(line, file=sys.stderr)
    if products and is_report():
        raise WorkflowError(
            "no report was made: it would show what the lines above call outdated. Run the study first, or name "
            "the config of the study as it was run (--configfile)"
        )
    write_marks({key: why for key, why in found.items() if why is not None})
    return found


def keyed(rule):
    return {key_of(rule, [name]): shown(why) for name, why in OUTDATED[rule]().items()}


def find_outdated_products():
    """The rules without wildcards that the study has and whose outputs are outdated, each with the reason."""
    wanted = [product for product in get_products() if is_wanted(product)]
    outdated_runs = OUTDATED[RUN_RULE]()
    again = {
        seal
        for cell_id, seal in zip(CELLS, get_all_seals(), strict=True)
        if cell_id in outdated_runs or is_asked_for(RUN_RULE, seal)
    }
    for product in wanted:
        if is_asked_for(product.name, *product.outputs):
            again.update(product.outputs)
    return outdated(wanted, MadeFrom(MADE_FROM), AT_START, again)


def write_marks(reasons):
    """Write the marks, all at once: Snakemake lists a folder when it meets its first file, and takes later ones for missing."""
    try:
        for key, reason in reasons.items():
            write_mark(key, reason)
    except OSError as error:
        raise WorkflowError(
            f"outdated outputs cannot be marked in {MARKS}: {blame(error, MARKS)}"
        ) from None


def write_mark(key, reason):
    """Write a file that is newer than the outputs, though not newer than now: Snakemake refuses that."""
    path = MARKS / key
    path.parent.mkdir(parents=True, exist_ok=True)
    # Snakemake takes a mark that it has seen before for an old one, so each is another.
    path.write_text(f"{reason}\n{time.time_ns()}\n", encoding="utf-8")
    now = path.stat().st_mtime
    name, *values = key.split("/")
    for pattern in map(str, workflow.get_rule(name).output):
        output = re.sub(r"{.*}", values[0], pattern) if values else pattern
        # The clock was wrong when an output was made that is newer than now.
        if os.path.exists(output) and os.path.getmtime(output) >= now:
            with naming(Path(output).absolute()):
                os.utime(output, (now - 1, now - 1))


def is_wanted(product):
    """Whether the study has this product, and the command line allows its rule."""
    allowed = workflow.dag_settings.allowed_rules
    return (not allowed or product.name in allowed) and not is_unshown_figure(product)


def is_unshown_figure(product):
    return product.name.startswith("draw_") and set(product.outputs).isdisjoint(
        get_all_figures()
    )


def get_left_over():
    """A line with all figures that are there, though this study shows no such figures. None where there are none."""
    found = [
        path
        for product in filter(is_unshown_figure, get_products())
        for path in filter(os.path.exists, product.outputs)
    ]
    if found:
        yield (
            f"left over: {', '.join(found)}: this config asks for no such figure. If it is the right config, remove "
            "what is left over; if not, name the right one (--configfile)"
        )


def is_report():
    """Whether only a report is asked for, of what is there. With --report-after-run the study is run first."""
    given = {each.partition("=")[0] for each in sys.argv}
    return "--report-after-run" not in given and not given.isdisjoint(
        ["--report", "--reporter"]
    )


def is_asked_for(rule, *outputs):
    """Whether --forcerun names it."""
    return not workflow.dag_settings.forcerun.isdisjoint([rule, *outputs])


@functools.cache
def get_products():
    """What each rule without wildcards makes, and from what."""
    return [
        Product(
            name=rule.name,
            inputs=tuple(_values(rule.input)),
            settings=json.dumps([*_values(rule.params), rule.shellcmd]),
            outputs=tuple(map(str, rule.output)),
        )
        for rule in workflow.rules
        if rule.output and not rule.has_wildcards()
    ]


def _values(items):
    """The texts of a rule's inputs or params."""
    for item in items:
        if callable(item):
            item = getattr(item, "all", item)(None)
        yield from [item] if isinstance(item, str) else map(str, item)


def note_made():
    """Record what the outputs were made from that this workflow has made. With --touch it has made none."""
    if workflow.touch:
        return
    jobs = list(workflow.dag.finished_jobs)
    names = {job.rule.name for job in jobs}
    made = {str(path) for job in jobs for path in job.output}
    products = [product for product in get_products() if product.name in names]
    if not products:
        return
    try:
        MadeFrom(MADE_FROM).note(products, AT_START, made)
    except OSError as error:  # raised, it would hide why the workflow has failed
        print(
            f"{MADE_FROM} cannot be written: {blame(error, MADE_FROM)}; what was made is made again at the next start",
            file=sys.stderr,
        )
