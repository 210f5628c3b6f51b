"""The tables of the replay servers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from ...arguments import Doubles
from ...errors import BenchmarkUnavailableError
from ..report import Aim, Row, Table
from .records import BATCH, RECORDS
from .results import Results, results_of
from .rounds import Measured, Window
from .setting import IntakeSetting
from .stacks import MPI_PICKLE, MPI_RAW, ZMQ_PICKLE, ZMQ_RAW

RAW_AIM, RAW_GOAL = 1.4, 2.31
PUBLISHED_AIM, PUBLISHED_GOAL = 20.0, 100.0
PROCESSOR_AIM = 1.3
LEARNER_OFF, LEARNER_ON = "learner off", "learner on"
REQUEST = "a request"
OURS = MPI_RAW.title
RATES = "transitions a second"
_AIMED = "An aim stands where the processes are at most one more than the cores."


def rates_table(setting: IntakeSetting, missing: dict[str, str]) -> Table:
    """Compare rates of all stacks; ratios are to raw records over ZeroMQ."""
    results = _results(setting, missing)
    against = _rival(results)
    return Table(
        "rates",
        f"Intake of all stacks, {OURS} against {against}",
        f"Batches of {BATCH} transitions with priorities, acknowledged. The server of {OURS} is "
        f"libsumtree.replay as users get it, that of {ZMQ_RAW.title} one ROUTER loop on a local "
        "socket over the same buffer; actors of both send a batch from where it lies. The aim is "
        f"{RAW_AIM:g}, the goal {RAW_GOAL:g}. {_AIMED} "
        "After every run each server held as many transitions as were acknowledged; in a run "
        "before, every record that was sent, bit for bit, and their total. "
        f"{_copies(results)}{'; '.join(results.libraries)}.",
        _rate_rows(results, against, Aim(RAW_AIM) if against == ZMQ_RAW.title else None),
        RATES,
    )


def _copies(results: Results) -> str:
    """Say what a server of one core cannot pass."""
    return "".join(
        f"One copy of each {RECORDS[record].title} record into a ring, by one core, from memory of "
        f"its own, goes at {rate:,.0f}. "
        for record, rate in results.copies.items()
    )


def published_table(setting: IntakeSetting, missing: dict[str, str]) -> Table:
    """Compare rates with the published server.

    Raises
    ------
    BenchmarkUnavailableError
        If pyzmq is missing.
    """
    results = _results(setting, missing)
    if ZMQ_PICKLE not in results.stacks:
        raise BenchmarkUnavailableError(results.missing["ZeroMQ"])
    return Table(
        "published",
        f"Intake, {OURS} against the published server",
        f"That of {ZMQ_PICKLE.title} is the published Ape-X server: proxies from TCP, asyncio "
        "workers, pickle, one call for each transition, trees in plain Python. Its proxies are "
        f"processes of their own, and not counted where an aim is set. The aim is "
        f"{PUBLISHED_AIM:g}, the goal {PUBLISHED_GOAL:g}. {_AIMED}",
        _rate_rows(results, ZMQ_PICKLE.title, Aim(PUBLISHED_AIM), (ZMQ_PICKLE.title, OURS)),
        RATES,
    )


def requests_table(setting: IntakeSetting, missing: dict[str, str]) -> Table:
    """Compare round trips of the learner's requests while actors add, and alone."""
    results = _results(setting, missing)
    against = _rival(results)
    rows = []
    for cell in results.rounds:
        for name, look in _ROUND_TRIPS.items():
            times = results.figures(cell, look)
            ratio = _ratio(times[against], times[OURS])
            request = RECORDS[cell.record].request
            title = f"{cell.title()}, {name}"
            rows.append(Row(title, request, _medians(times), ratio, against, setting.rounds))
    return Table(
        "requests",
        "Requests of the learner while actors add, and once they rest",
        "From request to transitions, one request at a time, each followed by new priorities for "
        f"what it drew. The ratio is how many times as fast {OURS} is.",
        rows,
        "microseconds a request",
    )


def processor_table(setting: IntakeSetting, missing: dict[str, str]) -> Table:
    """Compare the server's processor time for a transition, beside a learner and without."""
    results = _results(setting, missing)
    rows = []
    for cell in results.rounds:
        off = results.figures(cell, lambda measured: 1e6 * measured.adding.a_transition)
        on = results.figures(cell, lambda measured: 1e6 * measured.both.a_transition)
        asking = results.figures(cell, lambda measured: 1e6 * measured.asking.a_request)
        for title in off:
            times = {LEARNER_OFF: off[title], LEARNER_ON: on[title], REQUEST: asking[title]}
            ratio = _ratio(on[title], off[title])
            aimed = title == OURS and cell.fits(learner=True)
            aim = Aim(PROCESSOR_AIM, at_most=True) if aimed else None
            name = f"{cell.title()}, {title}"
            rows.append(Row(name, BATCH, _medians(times), ratio, LEARNER_OFF, setting.rounds, aim))
    return Table(
        "processor",
        "Processor time of the server for a transition",
        "All threads of the server, and its proxies where it has some. Waiting for messages is "
        "part of it, and, beside a learner that asks without a pause, so are its requests and "
        "updates. The ratio is with the learner to without. Beside them stands what one request "
        "and its update take while actors rest.",
        rows,
        "microseconds of processor time, of a transition or of a request",
    )


def _results(setting: IntakeSetting, missing: dict[str, str]) -> Results:
    results = results_of(setting)
    missing.update(results.missing)
    return results


def _rival(results: Results) -> str:
    """Give the stack that ours is compared with."""
    return (ZMQ_RAW if ZMQ_RAW in results.stacks else MPI_PICKLE).title


def _rate_rows(
    results: Results, against: str, aim: Aim | None, titles: Sequence[str] = ()
) -> list[Row]:
    rows = []
    for learner, look in ((False, _rate_off), (True, _rate_on)):
        for cell in results.rounds:
            rates = results.figures(cell, look)
            shown = {title: rates[title] for title in titles or rates}
            rows.append(
                Row(
                    f"{cell.title()}, {LEARNER_ON if learner else LEARNER_OFF}",
                    BATCH,
                    _medians(shown),
                    _ratio(rates[OURS], rates[against]),
                    against,
                    len(rates[OURS]),
                    aim if cell.fits(learner) else None,
                )
            )
    return rows


def _rate_off(measured: Measured) -> float:
    return measured.adding.rate


def _rate_on(measured: Measured) -> float:
    return measured.both.rate


def _percentile(window: Window, percent: int) -> float:
    return 1e6 * float(np.percentile(window.times, percent))


_ROUND_TRIPS: Mapping[str, Callable[[Measured], float]] = {
    "p50": lambda measured: _percentile(measured.both, 50),
    "p99": lambda measured: _percentile(measured.both, 99),
    "p50 at rest": lambda measured: _percentile(measured.asking, 50),
}


def _medians(figures: Mapping[str, Doubles]) -> dict[str, float]:
    return {name: float(np.median(rounds)) for name, rounds in figures.items()}


def _ratio(over: Doubles, under: Doubles) -> float:
    return float(np.median(over / under))
