from __future__ import annotations

import argparse

import numpy as np
import pytest

from libsumtree.apex import ApexOptions, OptionError
from libsumtree.apex.options import read_options
from libsumtree.apex.parameter_messages import EPISODE_DTYPE
from libsumtree.apex.progress import Counters, Progress
from libsumtree.apex.run import shares
from libsumtree.cli import apex, main


def parse(*arguments):
    parser = argparse.ArgumentParser()
    apex.add_parser(parser.add_subparsers())
    return parser.parse_args(["apex", *arguments])


def options(*arguments):
    return read_options(vars(parse(*arguments)))


def test_the_defaults_are_sound():
    ApexOptions().check()
    assert options() == ApexOptions()


def test_every_option_has_help_and_shows_its_default(capsys):
    with pytest.raises(SystemExit) as caught:
        parse("--help")
    assert caught.value.code == 0
    text = " ".join(capsys.readouterr().out.split())
    for name in ApexOptions.__dataclass_fields__:
        assert "--" + name.replace("_", "-") in text
    assert "(default: CartPole-v1)" in text
    assert "(default: 128,128)" in text
    assert "--evaluate POLICY" in text


@pytest.mark.parametrize("prefetch", ["-1", "4"])
def test_prefetch_is_within_the_credits(prefetch):
    with pytest.raises(OptionError, match=f"--prefetch is {prefetch}: it must be 0 to 3"):
        options("--prefetch", prefetch).check()


def test_options_are_read():
    given = options("--hidden", "64,32", "--samples-per-insert", "none", "--steps", "2000")
    assert given.hidden == (64, 32)
    assert given.samples_per_insert is None
    assert given.steps == 2000
    given.check()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--steps", "1e5"], "--steps is '1e5': it must be a whole number"),
        (["--gamma", "high"], "--gamma is 'high': it must be a number"),
        (["--hidden", "128,x"], "--hidden is '128,x': it must be whole numbers with commas"),
        (["--samples-per-insert", "no"], "--samples-per-insert is 'no': it must be a number or 'n"),
        (["--samples-per-insert", "0"], "--samples-per-insert is 0.0: it must be above 0"),
        (["--actors", "0"], "--actors is 0: it must be above 0"),
        (["--learning-rate", "nan"], "--learning-rate is nan: it must be above 0"),
        (["--batch-size", "-5"], "--batch-size is -5: it must be above 0"),
        (["--gamma", "1.5"], "--gamma is 1.5: it must be 0 to 1"),
        (["--beta", "-0.1"], "--beta is -0.1: it must be 0 to 1"),
        (["--alpha", "nan"], "--alpha is nan: it must be 0 to inf"),
        (["--seed", "-1"], "--seed is -1: it must be 0 to"),
        (["--hidden", "0"], "--hidden is '0': it must be widths above 0, as in 128,128"),
        (["--hidden", ""], "--hidden is ''"),
        (["--learning-starts", "500", "--capacity", "400"], "--learning-starts 500 is above --cap"),
        (["--learning-starts", "500", "--steps", "400"], "--learning-starts 500 is above --steps"),
        (["--checkpoint-interval", "5"], "--checkpoint-interval needs --checkpoint-dir"),
        (["--keep", "2"], "--keep needs --checkpoint-dir"),
        (["--resume", "auto"], "--resume auto needs --checkpoint-dir"),
        (["--checkpoint-dir", "x", "--keep", "0"], "--keep is 0: it must be above 0"),
        (["--checkpoint-dir", "x", "--checkpoint-interval", "0"], "--checkpoint-interval is 0.0"),
    ],
)
def test_options_that_cannot_be(arguments, message):
    with pytest.raises(OptionError) as caught:
        options(*arguments).check()
    assert str(caught.value).startswith(message)


def test_a_checkpoint_that_is_not_there(tmp_path):
    given = options("--checkpoint-dir", str(tmp_path), "--resume", str(tmp_path / "no.h5"))
    with pytest.raises(FileNotFoundError, match=r"no\.h5 is not a file"):
        given.check()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--evaluate", "no.npz"], "libsumtree: error: no.npz: No such file"),
        (
            ["--evaluate", "no.npz", "--checkpoint-dir", "x"],
            "libsumtree: error: --evaluate plays a saved policy and cannot go with --check",
        ),
        (
            ["--evaluate", "no.npz", "--seed", "1", "--actors", "2"],
            "libsumtree: error: --evaluate plays a saved policy and cannot go with --actors, --s",
        ),
    ],
)
def test_one_line_and_status_2(capsys, arguments, message):
    assert main(["apex", *arguments]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(message)
    assert err.count("\n") == 1


def test_shares_sum_to_the_whole():
    assert shares(10, 4) == [3, 3, 2, 2]
    assert shares(0, 3) == [0, 0, 0]
    assert shares(2, 4) == [1, 1, 0, 0]


def test_progress_lines_come_when_it_is_time():
    now = [100.0]
    lines = []
    progress = Progress(2.0, lines.append, clock=lambda: now[0])
    progress.tick(Counters(inserted=1000, sampled=0, stale=0))
    progress.add_episodes(np.array([(10.0, 10), (20.0, 20)], EPISODE_DTYPE))
    progress.add_loss(0.5)
    progress.add_loss(1.5)
    now[0] = 101.9
    progress.tick(Counters(1500, 20_000, 1))
    assert lines == []
    now[0] = 104.0
    progress.tick(Counters(3000, 120_000, 7))
    (line,) = lines
    assert " ".join(line.split()) == (
        "4.0 s steps 3,000 intake 500/s samples 30,000/s return 15.00 greedy nan loss 1.0000 "
        "stale 7"
    )
    assert progress.episodes == 2
    now[0] = 106.0
    progress.tick(Counters(3000, 120_000, 7))
    assert "intake        0/s" in lines[1]
    assert "loss      nan" in lines[1]


def test_the_training_return_is_of_the_last_hundred_episodes():
    progress = Progress(2.0, print, clock=lambda: 0.0)
    episodes = np.zeros(150, EPISODE_DTYPE)
    episodes["episode_return"] = np.arange(150)
    progress.add_episodes(episodes)
    assert progress.training_return == np.arange(50, 150).mean()
    assert progress.episodes == 150
