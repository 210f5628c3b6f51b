"""Sites found and refused, requests checked, templates filled."""

from __future__ import annotations

import os
import re
import resource
import shlex
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from libsumtree.cli import main
from libsumtree.jobs import places
from libsumtree.jobs.check import Outcome, ranks
from libsumtree.jobs.errors import JobError, SiteError
from libsumtree.jobs.probe import Sight
from libsumtree.jobs.render import render
from libsumtree.jobs.request import SUBMIT, Request, directives
from libsumtree.jobs.site import read_site

CHECKOUT = Path(__file__).resolve().parents[2]
APEX = ("apex", "--seed", "0")


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give a home of its own, and none of the machine's settings."""
    for name in ("LIBSUMTREE_JOBS", "LIBSUMTREE_SITE", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


def make_site(folder: Path, name: str = "own", text: str = "site_launcher=mpirun\n") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.sh"
    path.write_text(text)
    path.chmod(0o644)
    return path


def directive_lines(text: str) -> list[str]:
    return re.findall(r"^#(?:SBATCH|PBS|BSUB) .*$", text, re.MULTILINE)


@pytest.mark.parametrize("scheduler", SUBMIT)
def test_bare_templates_and_rendered_ones_ask_for_the_same(scheduler: str) -> None:
    template, _ = places.template(scheduler)
    assert directive_lines(template) == directives(scheduler, Request())


@pytest.mark.parametrize("scheduler", SUBMIT)
def test_no_template_names_an_account_a_partition_or_a_host(scheduler: str) -> None:
    template, _ = places.template(scheduler)
    assert not re.search(
        "--(account|partition|qos|nodelist)| -[APqm] ", "\n".join(directive_lines(template))
    )


def test_the_package_has_what_the_checkout_has() -> None:
    installed = places.templates()
    for path in (CHECKOUT / "jobs").rglob("*"):
        if (
            path.is_file()
            and path.name not in ("environment.sh", "local.sh")
            and "__pycache__" not in path.parts
        ):
            assert (
                installed / path.relative_to(CHECKOUT / "jobs")
            ).read_bytes() == path.read_bytes()


def test_every_site_of_the_package_is_safe_and_says_what_it_is_for() -> None:
    shipped = places.sites()
    assert {
        "srun-pmix",
        "mpirun",
        "srun-pmi2",
        "conda",
        "spack",
        "gpu",
        "shards",
        "workstation",
    } <= set(shipped)
    for name, path in shipped.items():
        assert places.find_site(name) == path
        assert len(places.describe(path)) > 20
        assert read_site(path, 5).launcher


def test_every_site_of_the_package_has_a_row_on_the_page_of_clusters() -> None:
    page = (CHECKOUT / "docs" / "clusters.md").read_text()
    rows = [line.split("|")[1] for line in page.splitlines() if line.startswith("| `")]
    named = {name for row in rows for name in re.findall(r"`([\w-]+)`", row)}
    assert {path.stem for path in (CHECKOUT / "jobs" / "sites").glob("*.sh")} <= named


def test_a_site_is_taken_from_the_nearest_folder(home: Path) -> None:
    own = make_site(home / ".config" / "libsumtree" / "sites", "mpirun")
    assert places.find_site("mpirun") == own
    assert places.sites()["mpirun"] == own


@pytest.mark.parametrize(
    "name", ["", "a b", "no-such-site", "naïve", "a\nb", "$(true)", "9" * 999, "./\0", "./\ud800"]
)
def test_names_that_are_no_site(name: str) -> None:
    with pytest.raises(SiteError):
        places.find_site(name)


def test_a_directive_is_a_line_and_a_line_ends_with_a_newline(tmp_path: Path) -> None:
    text = "site_launcher=x; site_directives=$'--a=\u2028--b\\n--c'"
    assert read_site(make_site(tmp_path, text=text)).directives == ("--a=\u2028--b", "--c")


@pytest.mark.parametrize(
    "odd",
    [
        {"HOME": ""},
        {"HOME": "here"},
        {"HOME": "", "XDG_CONFIG_HOME": "here"},
        {"XDG_CONFIG_HOME": "here"},
        {"XDG_CONFIG_HOME": ""},
    ],
    ids=str,
)
def test_no_site_is_looked_up_in_the_folder_at_hand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, odd: dict[str, str]
) -> None:
    """A home that is no absolute path is none: whoever filled the folder would be obeyed."""
    for place in ("", ".config", "here", "here/.config"):
        make_site(tmp_path / "others" / place / "libsumtree" / "sites", "theirs")
    monkeypatch.chdir(tmp_path / "others")
    for name, value in odd.items():
        monkeypatch.setenv(name, value)
    assert all(folder.is_absolute() for folder in places.site_folders())
    with pytest.raises(SiteError, match="no site 'theirs'"):
        places.find_site("theirs")
    find = ["bash", "-c", '. "$0"; site_folders; site_find theirs', str(places.body())]
    done = subprocess.run(find, capture_output=True, text=True)
    assert done.returncode == 1
    own, *_ = done.stdout.splitlines()
    assert own == str(places.site_folders()[0])


def test_templates_in_a_relative_folder_have_sites_that_jobs_find(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "jobs").symlink_to(CHECKOUT / "jobs")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LIBSUMTREE_JOBS", "jobs")
    assert places.find_site("mpirun") == tmp_path / "jobs" / "sites" / "mpirun.sh"


def test_dots_lead_nowhere(home: Path) -> None:
    make_site(home / ".config" / "libsumtree", "outside")
    for name in ("..", ".", "../outside"):
        with pytest.raises(SiteError):
            places.find_site(name)


@pytest.mark.parametrize("mode", [0o664, 0o646, 0o666])
def test_a_site_that_others_may_write_is_refused(tmp_path: Path, mode: int) -> None:
    path = make_site(tmp_path)
    path.chmod(mode)
    with pytest.raises(SiteError, match="others may write it"):
        places.find_site(str(path))


@pytest.mark.parametrize("mode", [0o757, 0o777])
@pytest.mark.parametrize("linked", [False, True], ids=["itself", "through a link"])
def test_a_site_in_a_folder_that_anybody_may_write_is_refused(
    tmp_path: Path, mode: int, linked: bool
) -> None:
    """They could put another file in its place after it was looked at."""
    path = link = make_site(tmp_path / "shared")
    if linked:
        link = tmp_path / "link.sh"
        link.symlink_to(path)
    path.parent.chmod(mode)
    with pytest.raises(SiteError, match=f"in its place; chmod o-w {path.parent}$"):
        places.find_site(str(link))
    for harmless in (0o1777, 0o775):  # as /tmp; as under umask 002
        path.parent.chmod(harmless)
        assert places.find_site(str(link)) == link


@pytest.mark.skipif(os.geteuid() != 0, reason="giving a folder away needs root")
def test_a_site_in_a_folder_of_somebody_else_is_refused(tmp_path: Path) -> None:
    path = make_site(tmp_path / "theirs")
    os.chown(path.parent, 12345, 0)
    with pytest.raises(SiteError, match=f"its folder {path.parent} belongs to user 12345"):
        places.find_site(str(path))


@pytest.mark.skipif(os.geteuid() != 0, reason="giving a file away needs root")
def test_a_site_of_somebody_else_is_refused(tmp_path: Path) -> None:
    path = make_site(tmp_path)
    os.chown(path, 12345, 0)
    with pytest.raises(SiteError, match="belongs to user 12345"):
        places.find_site(str(path))


def test_a_link_is_judged_by_what_it_leads_to(tmp_path: Path) -> None:
    path = make_site(tmp_path)
    path.chmod(0o666)
    link = tmp_path / "link.sh"
    link.symlink_to(path)
    with pytest.raises(SiteError, match="others may write it"):
        places.find_site(str(link))


def test_folders_and_pipes_are_no_sites(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.sh")
    for name in ("", "pipe.sh"):
        with pytest.raises(SiteError, match="is no file"):
            places.find_site(f"{tmp_path}/{name}")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("site_launcher=", "sets no site_launcher"),
        ("exit 3", "cannot be sourced"),
        ("site_launcher=x; site_ranks=many", "site_ranks to 'many'"),
        ("site_launcher=x; site_directives=qos", "no option of a scheduler"),
        (r"site_launcher=x; site_directives=$'--x=\xed'", "not UTF-8"),
        (f"site_launcher=x; site_ranks={'9' * 5000}", "no whole number of at most 18 digits"),
        ("site_launcher=x; site_ranks=\u0661", "no whole number"),
    ],
)
def test_sites_that_cannot_be_read(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(JobError, match=message):
        read_site(make_site(tmp_path, text=text))


def test_a_site_gives_defaults_and_the_user_the_rest(tmp_path: Path) -> None:
    text = (
        'site_launcher="mpirun -n $job_ranks"\n'
        'site_ranks=8 site_minutes=30\nsite_directives="--qos=long\n--exclusive"\n'
    )
    site = read_site(make_site(tmp_path, text=text), 3)
    assert site.launcher == "mpirun -n 3"
    filled = site.fill(Request(minutes=5, directives=("--x",)), {"minutes"})
    assert (filled.ranks, filled.minutes) == (8, 5)
    assert filled.directives == ("--qos=long", "--exclusive", "--x")


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        (Request(name="a b"), "name"),
        (Request(name="a\nb"), "name"),
        (Request(name="-x"), "name"),
        (Request(ranks=0), "ranks is 0"),
        (Request(memory=-1), "memory is -1"),
        (Request(minutes=2, lead=120), "lead is 120"),
        (Request(ranks=2, nodes=3), "fewer than 3 nodes"),
        (Request(directives=("--a\n--b",)), "newline"),
        (Request(directives=("--a\x7f",)), "control character"),
        (Request(directives=("--a 'b",)), "cannot be read"),
        (Request(directives=("rm",)), "no option"),
    ],
)
@pytest.mark.parametrize("scheduler", SUBMIT)
def test_requests_that_cannot_be(scheduler: str, request_: Request, message: str) -> None:
    with pytest.raises(JobError, match=message):
        directives(scheduler, request_)


def test_pbs_needs_ranks_that_divide_among_nodes() -> None:
    with pytest.raises(JobError, match="divide evenly"):
        directives("pbs", Request(ranks=7, nodes=2))
    assert "#PBS -l select=2:ncpus=4:mpiprocs=4:mem=512mb:ngpus=1" in directives(
        "pbs", Request(ranks=8, nodes=2, memory=512, gpus=1)
    )


@pytest.mark.parametrize("scheduler", SUBMIT)
def test_values_reach_the_program_as_they_are(scheduler: str, tmp_path: Path) -> None:
    nasty = ["a b", "'", '"', "$HOME", "`id`", "\\", "*", "é", "--", "#x", ""]
    script = render(
        scheduler, tmp_path, Request(), ["apex", *nasty], {"LIBSUMTREE_RUN_DIR": "/x'y z"}
    )
    (line,) = re.findall(r"^job_main .*$", script, re.MULTILINE)
    assert shlex.split(line) == ["job_main", "apex", *nasty]
    assert f"LIBSUMTREE_RUN_DIR={shlex.quote(chr(47) + 'x' + chr(39) + 'y z')}\n" in script
    assert "body.sh" not in re.sub("#.*", "", script)
    assert subprocess.run(["bash", "-n"], input=script, text=True).returncode == 0


@pytest.mark.parametrize("scheduler", SUBMIT)
@pytest.mark.parametrize("value", ["a\nb", "a\rb", "\0", "\x1b[m"])
def test_a_newline_in_a_value_is_an_error(scheduler: str, value: str, tmp_path: Path) -> None:
    with pytest.raises(JobError, match="newline"):
        render(scheduler, tmp_path, Request(), ["apex", "--env", value])
    with pytest.raises(JobError, match="newline"):
        render(scheduler, tmp_path, Request(), APEX, {"LIBSUMTREE_RUN_DIR": value})


@pytest.mark.parametrize("scheduler", SUBMIT)
def test_bytes_that_are_no_text_are_an_error(scheduler: str, tmp_path: Path) -> None:
    with pytest.raises(JobError, match="not UTF-8"):
        render(scheduler, tmp_path, Request(), ["apex", "--env", os.fsdecode(b"\xed")])


@pytest.mark.parametrize(
    "program", [[], ["verify"], ["replay"], ["replay", "--capacity", "3"], ["replay", "--"]]
)
def test_programs_that_are_none(program: list[str], tmp_path: Path) -> None:
    with pytest.raises(JobError):
        render("slurm", tmp_path, Request(), program)


def test_render_writes_what_it_prints(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["jobs", "render", "--scheduler", "slurm", "--site", "mpirun", "--ranks", "9"]
    assert main([*arguments, "apex", "--seed", "3"]) == 0
    printed = capsys.readouterr().out
    assert "#SBATCH --ntasks=9\n" in printed
    assert "\njob_main apex --seed 3\n" in printed
    path = tmp_path / "job.sh"
    assert main([*arguments, "--output", str(path), "apex", "--seed", "3"]) == 0
    assert path.read_text() == printed


def render_to(path: object, **options: Any) -> subprocess.CompletedProcess[str]:
    words = ["--scheduler", "slurm", "--site", "mpirun", "--output", str(path), "apex"]
    command = [sys.executable, "-m", "libsumtree", "jobs", "render", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, **options)


def test_a_full_disk_leaves_the_script_that_was_there(tmp_path: Path) -> None:
    path = tmp_path / "job.sh"
    path.write_text("the one before")
    small = (1000, 1000)
    full = partial(resource.setrlimit, resource.RLIMIT_FSIZE, small)
    done = render_to(path, preexec_fn=full)
    assert done.returncode == 2
    assert done.stderr == f"libsumtree: error: {path}: File too large\n"
    assert path.read_text() == "the one before"
    assert list(tmp_path.iterdir()) == [path]


def test_a_script_goes_where_a_link_leads_and_into_what_is_no_file(tmp_path: Path) -> None:
    link, path = tmp_path / "link.sh", tmp_path / "job.sh"
    link.symlink_to(path)
    assert render_to(link).returncode == 0
    assert link.is_symlink()
    assert path.stat().st_mode & 0o777 == 0o755 & ~umask()
    assert path.read_text() in render_to("/dev/stdout").stdout


def umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


@pytest.mark.parametrize(("mask", "mode"), [(0o022, 0o755), (0o077, 0o700), (0o027, 0o750)])
def test_who_may_read_a_script_may_run_it(tmp_path: Path, mask: int, mode: int) -> None:
    before = os.umask(mask)
    try:
        path = tmp_path / "job.sh"
        arguments = ["jobs", "render", "--scheduler", "slurm", "--site", "mpirun", "--output"]
        assert main([*arguments, str(path), "apex"]) == 0
    finally:
        os.umask(before)
    assert path.stat().st_mode & 0o777 == mode


@pytest.mark.parametrize(
    "arguments",
    [
        ["render", "apex"],
        ["render", "--scheduler", "slurm", "apex"],
        ["render", "--scheduler", "slum", "--site", "mpirun", "apex"],
        ["render", "--scheduler", "slurm", "--site", "nowhere", "apex"],
        ["render", "--scheduler", "slurm", "--site", "mpirun", "--max-restarts", "-1", "apex"],
        ["render", "--scheduler", "slurm", "--site", "mpirun", "--ranks", "many", "apex"],
        ["check"],
        ["check", "--site", "nowhere"],
        ["check", "--site", "mpirun", "--capacity", "0"],
        ["check", "--site", "mpirun", "--minutes", "1"],
        [],
    ],
)
def test_command_lines_that_cannot_be(
    arguments: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK"):
        monkeypatch.delenv(name, raising=False)
    assert main(["jobs", *arguments]) == 2
    said = capsys.readouterr().err
    assert said.startswith("libsumtree: error: ")
    assert said.count("\n") == 1


@pytest.mark.parametrize(
    ("ranks", "program", "text"),
    [
        (6, "apex --sed 0", "unrecognized arguments: --sed 0, perhaps --seed was meant"),
        (6, "replay --capacity 9 --sed 0 -- true", "perhaps --seed was meant; see libsumtree rep"),
        (6, "replay -- true", "the following arguments are required: --capacity"),
        (2, "apex", "apex needs 3 ranks or more; the job has 2"),
        (3, "replay --capacity 9 --shards 2 -- true --shards 1", "replay needs 4 ranks or more"),
        (3, "apex --shards 2", "apex needs 4 ranks or more"),
        (6, "apex --steps many", "--steps is 'many': it must be a whole number"),
    ],
)
def test_what_the_program_would_refuse_is_refused_before_it_waits_in_a_queue(
    ranks: int, program: str, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["jobs", "render", "--scheduler", "slurm", "--site", "mpirun", "--ranks", str(ranks)]
    assert main([*words, *program.split()]) == 2
    printed = capsys.readouterr()
    assert text in printed.err
    assert printed.out == ""


def test_list_shows_sites_and_what_is_wrong_with_one(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make_site(home / ".config" / "libsumtree" / "sites", "open").chmod(0o666)
    assert main(["jobs", "list"]) == 0
    printed = capsys.readouterr().out
    assert "srun-pmix" in printed
    assert re.search(r"open .*is refused", printed)


def sight(
    rank: int, size: int, library: str = "MPICH Version: 4.0.2", pmi: str = "PMIX_RANK"
) -> Sight:
    return Sight(rank, size, "here", library, "4.1", "0.1", pmi)


@pytest.mark.parametrize(
    ("sights", "status", "good", "message"),
    [
        ([sight(r, 3) for r in range(3)], 0, True, "3 in one world"),
        ([sight(0, 1)] * 3, 0, False, "3 silent singletons.*--mpi=pmi2"),
        (
            [sight(0, 1, "Open MPI v4.1.4", "PMI_RANK")] * 3,
            0,
            False,
            "3 silent singletons.*--mpi=pmix",
        ),
        ([sight(0, 1)], 0, False, "3 were asked for, 1 came up"),
        ([sight(r, 2) for r in range(2)], 0, False, "3 were asked for, 2 came up, in a world of 2"),
        ([sight(0, 2), sight(1, 2), sight(0, 1)], 0, False, "a world of 1, 2"),
        ([sight(r, 3) for r in range(3)], 1, False, "ended with 1"),
        ([], 7, False, "no rank came up .status 7.: nothing was printed"),
        ([], None, False, "no rank came up .in 5 s."),
    ],
)
def test_what_ranks_see(sights: list[Sight], status: int | None, good: bool, message: str) -> None:
    finding = ranks(Outcome(status, "", sights, {}), 3, 5.0)
    assert finding.good is good
    assert re.search(message, finding.text)
